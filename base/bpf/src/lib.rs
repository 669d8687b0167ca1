//! BPF programs that were compiled beforehand: loaded, attached, and their maps.
//!
//! An [`Object`] is what a compiler made of a C file: programs, and the maps that they share. It stands beside its source in the
//! crate that uses it, where `cargo xtask bpf` compiles it with the declarations in `include/`; [`include_object!`] puts it into the program. [`Object::attach`] loads one of its
//! programs and attaches it to an interface ([`AttachPoint`]).
//!
//! Promises: attached by a link of the kernel's, a program goes with its [`Attachment`], and so with the process, however it
//! ends. Only kernels without links for the tc hook (before 6.6) keep it if the process is killed
//! ([`Attachment::outlives_process`]). If the kernel refuses a program, its reasons are in the error ([`BpfError::Refused`]). No
//! compiler and no C library is needed where this is built or run.
//!
//! Must not: know what the programs are for; pin anything; take another's place at a hook.

mod attachment;
mod error;
mod maps;
mod object;

pub use attachment::{AttachPoint, Attachment, name_of, wait_for_running};
pub use error::BpfError;
pub use maps::{
    ArrayMap, DeviceMap, HashMap, PerCpuArrayMap, PrefixMap, QueueMap, SharedMap, SocketMap, Value,
};
pub use object::Object;

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
