//! Where control sockets are.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Where the system's instances have their sockets.
pub(crate) const SYSTEM: &str = "/run/warmlane";

/// What a socket's file name ends with.
pub(crate) const EXTENSION: &str = "sock";

/// The directory of this user's instances: `/run/warmlane` for root, `$XDG_RUNTIME_DIR/warmlane` for others. Users without such a
/// directory have root's if they may write there, as services may to which their manager has given it, and else
/// `/tmp/warmlane-NUMBER`, with the user's number.
pub fn directory() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    if rustix::process::geteuid().is_root() {
        return PathBuf::from(SYSTEM);
    }
    match runtime {
        Some(runtime) => runtime.join("warmlane"),
        None if access(SYSTEM, Access::WRITE_OK | Access::EXEC_OK).is_ok() => PathBuf::from(SYSTEM),
        None => of_user(),
    }
}

/// Where users have their sockets for whom the system has no better place.
pub(crate) fn of_user() -> PathBuf {
    Path::new("/tmp").join(format!("warmlane-{}", rustix::process::geteuid().as_raw()))
}

/// Whether a directory is this user's, and nobody else's: in /tmp anybody can make one of any name.
///
/// # Errors
/// It isn't, or can't be looked at.
pub(crate) fn check_own(directory: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(directory)?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    if found.is_dir() && is_own && found.mode() & 0o777 == 0o700 {
        return Ok(());
    }
    let sentence = format!("{} is not a directory of this user's alone (mode 0700)", directory.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, sentence))
}

/// The socket of an instance that is called so, in [`directory`].
pub fn path_of(name: &str) -> PathBuf {
    directory().join(format!("{name}.{EXTENSION}"))
}

/// What an instance with this socket is called.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_directory_that_others_can_reach_is_not_ones_own() {
        let parent = tempfile::tempdir().unwrap();
        let (own, link) = (parent.path().join("own"), parent.path().join("link"));
        fs::create_dir(&own).unwrap();
        symlink(&own, &link).unwrap();
        for (mode, is_own) in [(0o700, true), (0o701, false), (0o750, false), (0o777, false)] {
            fs::set_permissions(&own, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check_own(&own).is_ok(), is_own, "{mode:o}");
            assert!(check_own(&link).is_err(), "it may lead anywhere");
        }
        assert!(check_own(&parent.path().join("none")).is_err());
    }
}
