//! Classic capture files (pcap-savefile(5)), for programs that read them.

use std::io::{self, Write};

/// The link type of Ethernet frames (<https://www.tcpdump.org/linktypes.html>).
pub const ETHERNET: u32 = 1;
/// The link type of DOCSIS MAC frames.
pub const DOCSIS: u32 = 143;

/// Writes what stands in front of the first frame.
///
/// # Errors
/// What `output` says.
pub fn begin(output: &mut impl Write, link_type: u32) -> io::Result<()> {
    // Magic for microseconds, version 2.4, time zone, accuracy, snapshot length, link type.
    output.write_all(&0xa1b2_c3d4_u32.to_le_bytes())?;
    output.write_all(&[2, 0, 4, 0])?;
    words(output, [0, 0, 0x4_0000, link_type])
}

/// Writes a frame of which the capture has cut off that many bytes; `number` gives it a time of its own.
///
/// # Errors
/// What `output` says.
pub fn frame(output: &mut impl Write, number: u32, frame: &[u8], cut_off: u32) -> io::Result<()> {
    let length = frame.len() as u32;
    words(output, [1_700_000_000 + number / 1_000_000, number % 1_000_000, length, length + cut_off])?;
    output.write_all(frame)
}

fn words(output: &mut impl Write, words: [u32; 4]) -> io::Result<()> {
    words.iter().try_for_each(|word| output.write_all(&word.to_le_bytes()))
}
