//! Writing files: what is read back, by this crate and by Wireshark, and what stands under which name when.

use std::path::{Path, PathBuf};
use std::{fs, process::Command};

use crate::common::read_all;
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};
use warmlane_pcap::{Format, MAXIMUM_FRAME, PcapError, Reader, Writer};
use warmlane_testkit::requirements;

/// Nanoseconds since the epoch and the frame.
type Stamped = (u64, Vec<u8>);

/// A directory, and the name of a capture in it.
fn place() -> (TempDir, PathBuf) {
    let directory = tempdir().unwrap();
    let path = directory.path().join("out.pcap");
    (directory, path)
}

fn write(path: &Path, format: Format, frames: &[Stamped]) {
    let mut writer = Writer::create(path, format).unwrap();
    for (timestamp, frame) in frames {
        writer.write_frame(*timestamp, frame).unwrap();
    }
    writer.finish().unwrap();
}

fn read(path: &Path) -> Vec<Stamped> {
    let (frames, error) = read_all(fs::File::open(path).unwrap());
    assert!(error.is_none(), "{error:?}");
    frames
        .into_iter()
        .map(|frame| {
            assert_eq!((frame.link_type, frame.interface, frame.fcs_length), (1, 0, 0));
            assert_eq!(frame.original_length as usize, frame.data.len());
            (frame.timestamp, frame.data)
        })
        .collect()
}

/// Frames of every length up to a jumbo's, many more bytes than the buffers of reader and writer hold.
fn traffic() -> Vec<Stamped> {
    (0..700_usize)
        .map(|number| {
            let frame = (0..14 + number * 13).map(|at| (at * 31 + number) as u8).collect();
            (1_700_000_000_000_000_000 + number as u64 * 1_234_567_891, frame)
        })
        .collect()
}

#[test]
fn more_than_the_buffers_hold() {
    let directory = tempdir().unwrap();
    for format in [Format::Pcap, Format::Pcapng] {
        let path = directory.path().join(format.to_string());
        write(&path, format, &traffic());
        assert!(fs::metadata(&path).unwrap().len() > 3 << 20);
        assert!(read(&path) == traffic(), "{format}");
        assert_eq!(Reader::open(&path).unwrap().format(), format);
    }
}

#[test]
fn the_largest_frame_and_beyond() {
    let directory = tempdir().unwrap();
    for format in [Format::Pcap, Format::Pcapng] {
        let path = directory.path().join("large");
        let largest = MAXIMUM_FRAME as usize;
        write(&path, format, &[(1, vec![1; largest]), (2, vec![2; largest + 7]), (3, vec![3; 60])]);
        let (frames, error) = read_all(fs::File::open(&path).unwrap());
        assert!(error.is_none(), "{error:?}");
        let lengths: Vec<_> = frames.iter().map(|frame| (frame.data.len(), frame.original_length)).collect();
        assert_eq!(lengths, [(largest, MAXIMUM_FRAME), (largest, MAXIMUM_FRAME + 7), (60, 60)]);
    }
}

#[test]
fn snap_length_cuts_over_segments() {
    let directory = tempdir().unwrap();
    for format in [Format::Pcap, Format::Pcapng] {
        let path = directory.path().join("snapped");
        let mut writer = Writer::with_snap_length(&path, format, 5).unwrap();
        let segments: [&[u8]; 3] = [b"abc", b"defg", b"hij"];
        writer.write_segments(7, 10, segments).unwrap();
        writer.write_segments(8, 3, [&b"xyz"[..]]).unwrap();
        writer.finish().unwrap();
        let (frames, _) = read_all(fs::File::open(&path).unwrap());
        assert_eq!((&frames[0].data[..], frames[0].original_length), (&b"abcde"[..], 10));
        assert_eq!((&frames[1].data[..], frames[1].original_length), (&b"xyz"[..], 3));
    }
    for length in [0, MAXIMUM_FRAME + 1] {
        let error =
            Writer::with_snap_length(&directory.path().join("never"), Format::Pcap, length).unwrap_err();
        assert!(matches!(error, PcapError::SnapLength { .. }));
    }
}

#[test]
fn wireshark_reads_the_same() {
    if !requirements::programs(&["tshark"]) {
        return;
    }
    let directory = tempdir().unwrap();
    for format in [Format::Pcap, Format::Pcapng] {
        let path = directory.path().join("written");
        write(&path, format, &traffic());
        let output = Command::new("tshark")
            .args([
                "-n",
                "-T",
                "fields",
                "-e",
                "frame.time_epoch",
                "-e",
                "frame.len",
                "-e",
                "frame.cap_len",
                "-r",
            ])
            .arg(&path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        let expected: Vec<_> = traffic()
            .iter()
            .map(|(timestamp, frame)| {
                let (seconds, fraction) = (timestamp / 1_000_000_000, timestamp % 1_000_000_000);
                format!("{seconds}.{fraction:09}\t{length}\t{length}", length = frame.len())
            })
            .collect();
        assert_eq!(lines, expected, "{format}");
    }
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_name_is_taken_at_the_end_only() {
    let (directory, path) = place();
    fs::write(&path, "what was there before").unwrap();
    let mut writer = Writer::create(&path, Format::Pcap).unwrap();
    writer.write_frame(1, &[0; 60]).unwrap();
    assert_eq!((writer.written().frames, writer.buffered().frames), (0, 1));
    writer.flush().unwrap();
    assert_eq!((writer.written().frames, writer.written().bytes, writer.buffered().frames), (1, 60, 0));
    assert_eq!(names(directory.path()), [".out.pcap.partial", "out.pcap"]);
    assert_eq!(fs::read(&path).unwrap(), b"what was there before");
    writer.finish().unwrap();
    assert_eq!(names(directory.path()), ["out.pcap"]);
    assert_eq!(read(&path).len(), 1);
}

#[test]
fn dropping_finishes() {
    let (directory, path) = place();
    let mut writer = Writer::create(&path, Format::Pcap).unwrap();
    writer.write_frame(1, &[0; 60]).unwrap();
    drop(writer);
    assert_eq!(names(directory.path()), ["out.pcap"]);
    assert_eq!(read(&path).len(), 1);
}

#[test]
fn two_writers_do_not_share_a_file_and_a_dead_ones_rest_is_overwritten() {
    let (directory, path) = place();
    fs::write(directory.path().join(".out.pcap.partial"), [7; 1_000]).unwrap();
    let mut first = Writer::create(&path, Format::Pcap).unwrap();
    first.write_frame(1, &[0; 60]).unwrap();
    let error = Writer::create(&path, Format::Pcap).unwrap_err().to_string();
    assert!(error.contains("another writer"), "{error}");
    first.finish().unwrap();
    assert_eq!(read(&path).len(), 1);
}

#[test]
fn a_symbolic_link_stays_one() {
    let directory = tempdir().unwrap();
    let (target, link) = (directory.path().join("target.pcap"), directory.path().join("link.pcap"));
    fs::write(&target, "").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    write(&link, Format::Pcap, &[(1, vec![0; 60])]);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(read(&target).len(), 1);
}

#[test]
fn a_full_disk_is_an_error_once_and_stops_the_writer() {
    // /dev/full takes no byte: ENOSPC.
    let mut writer = Writer::create("/dev/full".as_ref(), Format::Pcapng).unwrap();
    let mut taken = 0;
    let error = loop {
        match writer.write_frame(1, &[0; 1_000]) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    match &error {
        PcapError::Write { source, lost, written, .. } => {
            assert_eq!(source.raw_os_error(), Some(28), "{source}");
            assert_eq!((*lost, *written), (taken, 0));
        }
        error => panic!("{error}"),
    }
    assert!(taken > 900, "{taken} frames fit the buffer");
    assert!(matches!(writer.write_frame(1, &[0; 60]), Err(PcapError::Stopped { .. })));
    assert!(matches!(writer.flush(), Err(PcapError::Stopped { .. })));
    assert!(matches!(writer.finish(), Err(PcapError::Stopped { .. })));
    assert!(Path::new("/dev/full").exists(), "a device is not replaced");
}

#[test]
fn a_directory_that_is_not_there() {
    let error = Writer::create("no/such/directory/out.pcap".as_ref(), Format::Pcap).unwrap_err();
    assert!(error.to_string().contains("no/such/directory/.out.pcap.partial"), "{error}");
}

#[test]
fn the_format_follows_the_name() {
    for (name, format) in
        [("a.pcap", Format::Pcap), ("a", Format::Pcap), ("a.PcapNG", Format::Pcapng), ("a.cap", Format::Pcap)]
    {
        assert_eq!(Format::of_name(name.as_ref()), format, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_written_is_read(
        frames in prop::collection::vec(
            // pcap has 32 bits of seconds.
            (0..(1_u64 << 32) * 1_000_000_000, prop::collection::vec(any::<u8>(), 0..3_000)), 0..20),
        pcapng in any::<bool>(),
    ) {
        let directory = tempdir().unwrap();
        let path = directory.path().join("file");
        write(&path, if pcapng { Format::Pcapng } else { Format::Pcap }, &frames);
        prop_assert_eq!(read(&path), frames);
    }
}
