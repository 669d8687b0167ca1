//! Loads precompiled BPF programs, attaches them, and reads and writes their maps.
//!
//! An [`Object`] is a compiled C file: programs, and the maps that they share. It is committed beside its source in the crate that uses
//! it; `cargo xtask bpf` compiles it with the declarations in `include/`, and [`include_object!`] embeds it. [`Object::attach`] loads one
//! of its programs and attaches it to an interface ([`AttachPoint`]).
//!
//! Promises: a program is attached by a kernel link, so it is detached when its [`Attachment`] is dropped or the process ends, however
//! that happens. Only kernels without links for the tc hook (before 6.6) keep it if the process is killed
//! ([`Attachment::outlives_process`]), until [`remove_left_behind`] takes it away. If the kernel refuses a program, the error has its
//! log ([`BpfError::Refused`]). Neither building nor running needs a compiler for BPF or a C library.
//!
//! Must not: know what the programs are for, pin anything, or replace another program at a hook.

mod attachment;
mod error;
mod filter;
mod maps;
mod object;
mod others;

pub use attachment::{AttachPoint, Attachment, name_of, wait_for_running};
pub use error::BpfError;
pub use filter::remove_left_behind;
pub use maps::{
    ArrayMap, DeviceMap, HashMap, PerCpuArrayMap, PrefixMap, QueueMap, QueuePlace, SharedMap, SocketMap,
    Value,
};
pub use object::Object;
pub use others::has_others;

/// The bytes of a compiled object, at this path from the file that says it.
#[macro_export]
macro_rules! include_object {
    ($path:expr) => {
        $crate::macros::include_bytes_aligned!($path)
    };
}

/// What [`include_object!`] expands to. Nothing here is for other use.
#[doc(hidden)]
pub mod macros {
    pub use aya::include_bytes_aligned;
}
