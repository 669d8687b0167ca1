//! Where control sockets are.

use std::path::{Path, PathBuf};

/// Where the system's instances have their sockets.
pub(crate) const SYSTEM: &str = "/run/warmlane";

/// What a socket's file name ends with.
pub(crate) const EXTENSION: &str = "sock";

/// The directory of this user's instances: `/run/warmlane` for root, `$XDG_RUNTIME_DIR/warmlane` for others. Users without such a
/// directory, which services are, have that of root.
pub fn directory() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    match runtime {
        Some(runtime) if !rustix::process::geteuid().is_root() => runtime.join("warmlane"),
        _ => PathBuf::from(SYSTEM),
    }
}

/// The socket of an instance that is called so, in [`directory`].
pub fn path_of(name: &str) -> PathBuf {
    directory().join(format!("{name}.{EXTENSION}"))
}

/// What an instance with this socket is called.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
