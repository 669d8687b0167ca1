//! Names that an interface may have.

use crate::error::SystemError;

/// Bytes of an interface name, terminating zero included (`include/uapi/linux/if.h`).
const NAME_BYTES: usize = libc::IFNAMSIZ;

/// A name that an interface may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceName(String);

impl InterfaceName {
    /// Checks what the kernel checks (`net/core/dev.c: dev_valid_name`).
    ///
    /// # Errors
    /// [`SystemError::NameLength`], [`SystemError::NameCharacters`].
    pub fn new(name: &str) -> Result<Self, SystemError> {
        let length = name.len();
        if !(1..NAME_BYTES).contains(&length) {
            return Err(SystemError::NameLength { name: name.to_owned(), length });
        }
        let forbidden = |byte: u8| byte == b'/' || byte == b':' || byte == 0 || byte.is_ascii_whitespace();
        if name == "." || name == ".." || name.bytes().any(forbidden) {
            return Err(SystemError::NameCharacters { name: name.to_owned() });
        }
        Ok(Self(name.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// An empty `struct ifreq` about this interface.
    pub fn request(&self) -> libc::ifreq {
        // SAFETY: all zero is a value of this plain C struct.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (target, byte) in request.ifr_name[..NAME_BYTES - 1].iter_mut().zip(self.0.bytes()) {
            *target = libc::c_char::from_ne_bytes([byte]);
        }
        request
    }

    /// The name in a request that the kernel filled in.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn of_request(request: &libc::ifreq) -> Result<Self, SystemError> {
        let bytes = request.ifr_name.map(|byte| byte.to_ne_bytes()[0]);
        let name: String = bytes.into_iter().take_while(|byte| *byte != 0).map(char::from).collect();
        Self::new(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_as_the_kernel_does() {
        assert!(InterfaceName::new("eth0.100").is_ok());
        assert!(InterfaceName::new("fifteen-bytes-x").is_ok());
        let text = InterfaceName::new("sixteen-bytes-xx").unwrap_err().to_string();
        assert!(text.contains("16 bytes") && text.contains("1 to 15"), "{text}");
        assert!(matches!(InterfaceName::new(""), Err(SystemError::NameLength { length: 0, .. })));
        for name in ["a/b", "a:b", "a b", ".", "..", "a\0b"] {
            assert!(matches!(InterfaceName::new(name), Err(SystemError::NameCharacters { .. })), "{name:?}");
        }
    }
}
