//! What runs for every packet: nothing here allocates, locks or calls the system while a trial runs.

pub mod histogram;
mod one_field;
pub mod orders;
mod pacer;
mod plan;
pub mod random;
mod receive;
pub mod signature;
mod track;
mod transmit;
mod write;

pub use histogram::Histogram;
pub(crate) use one_field::OneField;
pub use pacer::Pattern;
pub(crate) use plan::{ChecksumPlan, FieldPlan, MAXIMUM_CHECKSUMS, Map, Order, Shape, StreamPlan, Values};
pub use plan::{MAXIMUM_STREAMS, Plan};
pub use receive::{ReceiveOrder, ReceiveOrders, ReceiveProgress, ReceiveReport, Receiver};
pub use track::{Disorder, StreamTrack, TrackConfig};
pub use transmit::{TransmitOrder, TransmitOrders, TransmitReport, Transmitter};
