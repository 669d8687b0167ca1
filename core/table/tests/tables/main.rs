//! Tables against simple models of them, and while others change them.

mod exact;
mod exact_concurrent;
mod live;
mod model;
mod near;
mod stop;
