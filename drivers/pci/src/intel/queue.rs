//! What differs between the cards in the work of a pair of rings.

use super::descriptor::{Context, Piece, Tso};
use std::fmt::Debug;
use warmlane_mem::Packet;

/// The registers of a pair of rings as lanes use them, and what the card is told by descriptors.
pub(crate) trait Queue: Debug + Send + Sync {
    /// Bytes behind the headers that the card can cut at most.
    const MOST_PAYLOAD: usize;

    /// The first descriptor that isn't for the card to fill. Registers are in order with memory: it finds there what was stored before.
    fn set_receive_tail(&self, position: u16);

    /// The first descriptor that isn't for the card to send. As above.
    fn set_transmit_tail(&self, position: u16);

    /// Has the card interrupt for what it receives from now on, of which it has heard when this returns.
    fn arm(&self);

    /// Has it interrupt no more.
    fn disarm(&self);

    /// The second word of a data descriptor.
    fn data(piece: Piece) -> u64;

    /// Which checksum of the frames behind it the card is to complete: of what starts at `start`, stored at `offset` from there. `None` if the card can't.
    fn checksum(packet: &Packet, start: u16, offset: u8) -> Option<Context>;

    /// How the card is to cut the frame behind it. `None` if it can't.
    fn segmentation(tso: Tso) -> Option<Context>;
}
