//! Who may read.

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use subtle::ConstantTimeEq as _;
use thiserror::Error;

/// The shortest token, in bytes: shorter ones can be guessed.
const SHORTEST: usize = 16;

/// The longest token, in bytes.
const LONGEST: usize = 1024;

/// What whoever reads must show: `Authorization: Bearer TOKEN` (RFC 6750).
#[derive(Clone)]
pub struct Token(Vec<u8>);

/// Why there is no token.
#[derive(Debug, Error)]
pub enum TokenError {
    /// It can't be read.
    #[error("the token file {path:?} can't be read: {source}")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others can read it.
    #[error("the token file {path:?} can be read by other users: `chmod 600 {}`", path.display())]
    Open {
        /// Which file.
        path: PathBuf,
    },
    /// That is none.
    #[error(
        "the token file {path:?} has no token: it is one line of {SHORTEST} to {LONGEST} letters, digits and marks without spaces, such as `openssl rand -hex 32` prints"
    )]
    NoToken {
        /// Which file.
        path: PathBuf,
    },
}

impl Token {
    /// Reads a file of one line, which nobody else can read.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let unreadable = |source| TokenError::Unreadable { path: path.to_owned(), source };
        let file = fs::File::open(path).map_err(unreadable)?;
        if file.metadata().map_err(unreadable)?.permissions().mode() & 0o077 != 0 {
            return Err(TokenError::Open { path: path.to_owned() });
        }
        let mut text = Vec::new();
        file.take(LONGEST as u64 + 2).read_to_end(&mut text).map_err(unreadable)?;
        let token = text.trim_ascii_end();
        let is_token = (SHORTEST..=LONGEST).contains(&token.len()) && token.iter().all(u8::is_ascii_graphic);
        if is_token { Ok(Self(token.to_owned())) } else { Err(TokenError::NoToken { path: path.to_owned() }) }
    }

    /// Whether this is it. How long that takes tells nothing of where they differ.
    fn is(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(shown).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token")
    }
}

/// What is asked of whoever reads.
#[derive(Clone, Debug)]
pub enum Access {
    /// To be on this machine, which the address sees to. A browser here could be led to us by a name that somebody else's server gives out
    /// for the loopback, so the request must be for an address, or `localhost`.
    Local,
    /// To show this.
    Bearer(Token),
}

impl Access {
    /// Whether a request that has these headers is let in.
    pub(crate) fn permits(&self, authorization: Option<&[u8]>, host: Option<&[u8]>) -> bool {
        match self {
            Self::Local => host.is_none_or(|host| std::str::from_utf8(host).is_ok_and(is_here)),
            Self::Bearer(token) => authorization.and_then(bearer).is_some_and(|shown| token.is(shown)),
        }
    }
}

/// What follows the scheme, whose letters may be of either case.
fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Whether a request's host, with or without a port, is no name but the one that everybody has for this machine.
fn is_here(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const SECRET: &str = "0123456789abcdef";

    pub(crate) fn token() -> Token {
        Token(SECRET.into())
    }

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (directory, path)
    }

    #[test]
    fn a_token_is_one_long_word_that_nobody_else_can_read() {
        let (_directory, path) = file(&format!("{SECRET}\n"), 0o600);
        assert!(Token::read(&path).unwrap().is(SECRET.as_bytes()));
        let (_directory, path) = file(SECRET, 0o640);
        assert!(matches!(Token::read(&path), Err(TokenError::Open { .. })));
        for wrong in
            ["", "short", "two words are not one", &"x".repeat(LONGEST + 1), "0123456789abcdef\nmore"]
        {
            let (_directory, path) = file(wrong, 0o600);
            assert!(matches!(Token::read(&path), Err(TokenError::NoToken { .. })), "{wrong}");
        }
        let missing = Token::read(Path::new("/nonexistent/token")).unwrap_err();
        assert!(matches!(missing, TokenError::Unreadable { .. }), "{missing}");
    }

    #[test]
    fn with_a_token_nothing_else_lets_in() {
        let access = Access::Bearer(token());
        let shown = |text: &str| access.permits(Some(text.as_bytes()), Some(b"localhost"));
        assert!(shown(&format!("Bearer {SECRET}")) && shown(&format!("bearer  {SECRET} ")));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            SECRET,
            "Basic 0123456789abcdef",
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcde",
        ] {
            assert!(!shown(wrong), "{wrong}");
        }
        assert!(!access.permits(None, Some(b"localhost")));
        assert_eq!(format!("{access:?}"), "Bearer(Token)", "it isn't printed");
    }

    #[test]
    fn without_one_a_name_from_elsewhere_does_not_lead_here() {
        let host = |text: &[u8]| Access::Local.permits(None, Some(text));
        for here in
            ["localhost", "LocalHost:9469", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:9469", "192.0.2.1:1"]
        {
            assert!(host(here.as_bytes()), "{here}");
        }
        for elsewhere in
            ["", "example.com", "localhost.example.com:9469", "[example.com]", "127.0.0.1.example.com"]
        {
            assert!(!host(elsewhere.as_bytes()), "{elsewhere}");
        }
        assert!(!host(b"\xff") && Access::Local.permits(None, None));
    }
}
