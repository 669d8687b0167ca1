//! Which path an interface does best.

use super::choice::Path;
use crate::control::kernel::{Link, XdpFeatures};

/// The best path for an interface, and why, in words. `features` is `None` if the kernel doesn't tell; `is_refused` says that its driver
/// was asked to exchange packets without copies, and refused.
pub(super) fn path(link: &Link, features: Option<XdpFeatures>, is_refused: bool) -> (Path, &'static str) {
    if !link.kind.is_empty() {
        return (Path::Tc, "a virtual interface, where large packets of TCP stay whole");
    }
    match features {
        Some(features) if features.zero_copy() && !is_refused => {
            (Path::User, "its driver can exchange packets with lanes without copies")
        }
        Some(features) if features.redirects() && features.sends_redirected() && is_refused => (
            Path::Xdp,
            "lanes would get copies, and its driver runs XDP programs and sends what others redirect",
        ),
        Some(features) if features.redirects() && features.sends_redirected() => {
            (Path::Xdp, "its driver runs XDP programs and sends what others redirect")
        }
        Some(features) if features.redirects() => {
            (Path::Tc, "its driver runs XDP programs, but doesn't send what others redirect")
        }
        Some(_) => (Path::Tc, "its driver runs no XDP programs"),
        None => {
            (Path::Tc, "the kernel doesn't tell what its driver can do with XDP: Linux 6.3 or later does")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(kind: &str) -> Link {
        Link {
            index: 1,
            name: "eth0".to_owned(),
            kind: kind.to_owned(),
            mac: Some([2; 6]),
            ..Link::default()
        }
    }

    #[test]
    fn what_the_driver_can_do_decides() {
        let of = |features| path(&link(""), features, false).0;
        assert_eq!(of(None), Path::Tc);
        assert_eq!(of(Some(XdpFeatures::of(0))), Path::Tc);
        assert_eq!(of(Some(XdpFeatures::of(3))), Path::Tc);
        assert_eq!(of(Some(XdpFeatures::of(7))), Path::Xdp);
        assert_eq!(of(Some(XdpFeatures::of(15))), Path::User);
        assert_eq!(path(&link("veth"), Some(XdpFeatures::of(7)), false).0, Path::Tc);
    }

    #[test]
    fn what_the_driver_refuses_is_not_best() {
        let of = |features| path(&link(""), Some(XdpFeatures::of(features)), true);
        let (best, why) = of(15);
        assert!(best == Path::Xdp && why.contains("copies"), "{best} {why}");
        // The driver doesn't send what others redirect, or runs no programs.
        assert_eq!((of(11).0, of(8).0), (Path::Tc, Path::Tc));
    }
}
