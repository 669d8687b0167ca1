//! What a counter means.

/// Whether a value only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, and wraps at 2⁶⁴.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// What part a value has in the balance of its set: what came in less what went out is what is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Counts what came in.
    In,
    /// Counts what went out, also what was dropped.
    Out,
    /// Counts something else, or what another counter has counted already.
    Note,
    /// Not a counter: goes up and down.
    Gauge,
    /// Not a counter: the highest value so far. Several of them together are the highest one, not their sum.
    Peak,
}

/// A value of a set: its name, and what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// The set's name, in lower case with hyphens, or what else tells values of one name apart: "queue", "lane", "pool". Together with
    /// the name it says what is counted, wherever that is.
    pub set: &'static str,
    /// In lower case with hyphens: it is part of machine-readable output.
    pub name: &'static str,
    /// What is counted: "packets", "bytes", "cycles".
    pub unit: &'static str,
    /// A sentence or more for people.
    pub help: &'static str,
    /// Its part in the set's balance.
    pub role: Role,
}

impl Description {
    /// Whether it only grows.
    pub const fn kind(&self) -> Kind {
        match self.role {
            Role::In | Role::Out | Role::Note => Kind::Counter,
            Role::Gauge | Role::Peak => Kind::Gauge,
        }
    }
}

/// The drops of a set with these entries: they went out, if the set says what came in.
pub const fn role_of_drops(entries: &[Description]) -> Role {
    let mut index = 0;
    while index < entries.len() {
        if matches!(entries[index].role, Role::In) {
            return Role::Out;
        }
        index += 1;
    }
    Role::Note
}

/// A Rust name of `N` bytes with hyphens for its underscores.
pub const fn kebab<const N: usize>(name: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let mut index = 0;
    while index < N {
        let byte = name.as_bytes()[index];
        bytes[index] = if byte == b'_' { b'-' } else { byte };
        index += 1;
    }
    bytes
}

/// How many bytes [`set_name`] has.
pub const fn set_name_length(set: &str) -> usize {
    let bytes = own_part(set);
    let (mut index, mut length) = (0, 0);
    while index < bytes.len() {
        length += if index > 0 && bytes[index].is_ascii_uppercase() { 2 } else { 1 };
        index += 1;
    }
    length
}

/// The name of a set by its Rust type's: `FlowTableCounters` is "flow-table".
pub const fn set_name<const N: usize>(set: &str) -> [u8; N] {
    let bytes = own_part(set);
    let mut name = [0; N];
    let (mut index, mut length) = (0, 0);
    while index < bytes.len() {
        if index > 0 && bytes[index].is_ascii_uppercase() {
            name[length] = b'-';
            length += 1;
        }
        name[length] = bytes[index].to_ascii_lowercase();
        (index, length) = (index + 1, length + 1);
    }
    name
}

/// What stands before "Counters", if anything does.
const fn own_part(set: &str) -> &[u8] {
    let bytes = set.as_bytes();
    match bytes.split_last_chunk() {
        Some((own, b"Counters")) if !own.is_empty() => own,
        _ => bytes,
    }
}

/// Where `name` is in `names`; it fails to compile if it is not there.
pub const fn position(names: &[&str], name: &str) -> usize {
    let mut index = 0;
    while !is_equal(names[index].as_bytes(), name.as_bytes()) {
        index += 1;
    }
    index
}

const fn is_equal(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let mut index = 0;
    while index < left.len() {
        if left[index] != right[index] {
            return false;
        }
        index += 1;
    }
    true
}
