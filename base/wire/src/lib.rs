//! Views and builders of protocol headers, and Internet checksums
