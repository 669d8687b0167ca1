//! Frames of the lengths that were recorded, in some mix.

use super::touches::{FrameTouches, LENGTHS};
use crate::cable;
use crate::error::LabError;
use warmlane_gen::control::Sizes;

/// The mix of the paper, and of what was recorded: 3 % of 68 bytes, 1 % of 932 and 96 % of 1,520.
pub const CABLE: &str = "cable";

/// Which of the recorded lengths each frame has, over and over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Places in [`LENGTHS`]; never empty.
    places: Vec<usize>,
    /// The one that most frames have.
    usual: usize,
}

impl Mix {
    fn new(places: Vec<usize>) -> Self {
        let count = |place: &usize| places.iter().filter(|other| *other == place).count();
        let usual = (0..LENGTHS.len()).rev().max_by_key(count).unwrap_or(0);
        Self { places, usual }
    }

    /// The paper's.
    pub fn cable() -> Self {
        let place = |bytes| LENGTHS.iter().position(|length| *length == bytes).unwrap_or(0);
        Self::new((0..100).map(|number| place(cable::mix(number))).collect())
    }

    /// From sizes as for `warmlane gen`.
    ///
    /// # Errors
    /// [`LabError::Setup`], for a text that says no sizes, and for frames that were not recorded.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        Self::of(&text.parse().map_err(LabError::setup)?, text)
    }

    /// The mix that sizes are, which somebody has called `text`.
    ///
    /// # Errors
    /// [`LabError::Setup`], for frames that were not recorded.
    pub fn of(sizes: &Sizes, text: &str) -> Result<Self, LabError> {
        if CABLE.parse::<Sizes>().is_ok_and(|cable| cable == *sizes) {
            return Ok(Self::cable());
        }
        let place = |size: &u16| LENGTHS.iter().position(|length| *length == u32::from(*size));
        let places: Option<Vec<usize>> = sizes.round().iter().map(place).collect();
        places.map(Self::new).ok_or_else(|| {
            LabError::setup(format!(
                "frames '{text}' for a downstream: its lines were recorded for the mix '{CABLE}', and for 1520, 932 and 68 bytes"
            ))
        })
    }

    /// Mean bytes of a frame, with its CRC.
    pub fn mean(&self) -> f64 {
        let bytes: u32 = self.places.iter().map(|place| LENGTHS[*place]).sum();
        f64::from(bytes) / self.places.len() as f64
    }
}

/// What each frame of a mix touches.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a> {
    /// Of each of [`LENGTHS`].
    touches: [&'a FrameTouches; 3],
    mix: &'a Mix,
}

impl<'a> Frames<'a> {
    /// Frames of a mix, of each length with its touches.
    pub const fn new(touches: [&'a FrameTouches; 3], mix: &'a Mix) -> Self {
        Self { touches, mix }
    }

    /// What a frame touches, of frames that are counted from 0.
    pub fn touches(&self, frame: usize) -> &'a FrameTouches {
        self.touches[self.mix.places[frame % self.mix.places.len()]]
    }

    /// What most frames touch.
    pub const fn usual(&self) -> &'a FrameTouches {
        self.touches[self.mix.usual]
    }

    /// Packets to the remote PHY for a thousand frames.
    pub fn packets_per_thousand(&self) -> usize {
        let packets: f64 = self.mix.places.iter().map(|place| self.touches[*place].packets).sum();
        #[expect(clippy::cast_sign_loss, reason = "nothing sends less than no packets")]
        let per_thousand = (packets / self.mix.places.len() as f64 * 1e3).round() as usize;
        per_thousand
    }
}

#[cfg(test)]
mod tests {
    use super::super::touches::Touches;
    use super::*;

    #[test]
    fn a_mix_is_of_recorded_lengths_and_others_are_named() {
        let cable = Mix::parse(CABLE).unwrap();
        assert_eq!(cable, Mix::cable());
        assert!((cable.mean() - 1_470.56).abs() < 1e-9, "{}", cable.mean());
        assert_eq!(LENGTHS[cable.usual], 1_520);
        let half = Mix::parse("68:1,1520:1").unwrap();
        assert!((half.mean() - 794.0).abs() < 1e-9, "{}", half.mean());
        let error = |text| Mix::parse(text).unwrap_err().to_string();
        assert!(error("imix").contains("frames 'imix' for a downstream"), "{}", error("imix"));
        assert!(error("mixed").contains("gives no frame sizes"), "{}", error("mixed"));
    }

    #[test]
    fn short_frames_touch_less_and_make_fewer_packets() {
        let touches = Touches::recorded().unwrap();
        let of = |mix: &Mix| {
            let frames = Frames::new(touches.frames(false).unwrap(), mix);
            (frames.touches(1).bytes, frames.usual().bytes, frames.packets_per_thousand())
        };
        let short = of(&Mix::parse("68").unwrap());
        assert_eq!((short.0, short.1), (68, 68));
        let cable = of(&Mix::cable());
        assert!(cable.1 == 1_520 && cable.2 > 10 * short.2, "{cable:?} {short:?}");
    }
}
