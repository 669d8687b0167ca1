use std::path::Path;

use warmlane_mem::Frames;

use crate::{LinkType, PcapError, Reader};

/// Reads the frames of a capture into memory, for replay.
///
/// # Errors
/// As for [`read_frames`].
pub fn load(path: &Path) -> Result<Frames, PcapError> {
    let mut frames = Frames::new();
    read_frames(path, |_, frame| Ok::<_, PcapError>(frames.push(frame)?))?;
    Ok(frames)
}

/// Passes each frame of a capture to `take`: nanoseconds since the epoch, and the frame without its check sequence.
///
/// # Errors
/// What `take` says; [`PcapError`] if the file can't be read, or has a frame that is not Ethernet or not whole.
pub fn read_frames<E: From<PcapError>>(
    path: &Path,
    mut take: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut reader = Reader::open(path)?;
    let mut number = 0_u64;
    while let Some(frame) = reader.next_frame()? {
        number += 1;
        let file = || path.to_owned();
        if frame.link_type != LinkType::ETHERNET {
            return Err(PcapError::FrameNotEthernet { file: file(), frame: number }.into());
        }
        if frame.is_snapped() {
            return Err(PcapError::FrameCutOff { file: file(), frame: number }.into());
        }
        take(frame.timestamp_nanoseconds, frame.without_fcs())?;
    }
    Ok(())
}
