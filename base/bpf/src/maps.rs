//! Maps: what programs and user space share.

use std::fmt;
use std::os::fd::AsFd;

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{
    Array, ArrayOfMaps, DevMapHash, HashMap as Hash, IterableMap as _, Map, MapData, MapError, PerCpuArray,
    Queue, XskMap,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::{BpfError, sentence};

/// What a map can hold: any bytes are one, and all its bytes are its own.
pub trait Value: FromBytes + IntoBytes + Immutable + Copy + 'static {}

impl<V: FromBytes + IntoBytes + Immutable + Copy + 'static> Value for V {}

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Plain<V>(V);

// SAFETY: any bytes are a value (FromBytes), and it has no padding (IntoBytes): Value asks for both.
unsafe impl<V: Value> aya::Pod for Plain<V> {}

/// What all kinds of maps can: be one of an object, and be shown.
macro_rules! maps {
    ($([$($generic:tt)*] $map:ty;)*) => {$(
        impl $($generic)* $map {
            pub(crate) fn of(name: &str, map: Map) -> Result<Self, BpfError> {
                Ok(Self { name: name.to_owned(), map: map.try_into().map_err(failed(name, "used"))? })
            }
        }

        impl $($generic)* fmt::Debug for $map {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple("Map").field(&self.name).finish()
            }
        }
    )*};
}

maps! {
    [<V: Value>] ArrayMap<V>;
    [<V: Value>] PerCpuArrayMap<V>;
    [<K: Value, V: Value>] HashMap<K, V>;
    [<K: Value, V: Value>] PrefixMap<K, V>;
    [] DeviceMap;
    [] SocketMap;
    [] SharedMap;
    [<V: Value>] QueueMap<V>;
    [<V: Value>] QueuePlace<V>;
}

/// An array: each index has a value, zero at first.
pub struct ArrayMap<V: Value> {
    name: String,
    map: Array<MapData, Plain<V>>,
}

impl<V: Value> ArrayMap<V> {
    /// Sets a value.
    ///
    /// # Errors
    /// [`BpfError::Map`]: there is no such index, or the kernel refuses.
    pub fn set(&mut self, index: u32, value: V) -> Result<(), BpfError> {
        self.map.set(index, Plain(value), 0).map_err(failed(&self.name, "written"))
    }
}

/// An array of which each CPU has its own values.
pub struct PerCpuArrayMap<V: Value> {
    name: String,
    map: PerCpuArray<MapData, Plain<V>>,
}

impl<V: Value> PerCpuArrayMap<V> {
    /// The values of all CPUs.
    ///
    /// # Errors
    /// [`BpfError::Map`]: there is no such index, or the kernel refuses.
    pub fn get(&self, index: u32) -> Result<Vec<V>, BpfError> {
        let values = self.map.get(&index, 0).map_err(failed(&self.name, "read"))?;
        Ok(values.iter().map(|value| value.0).collect())
    }
}

/// Values by key.
pub struct HashMap<K: Value, V: Value> {
    name: String,
    map: Hash<MapData, Plain<K>, Plain<V>>,
}

impl<K: Value, V: Value> HashMap<K, V> {
    /// Makes one that is of no object, for several of them to share ([`SharedMap`]). It takes memory for what is in it.
    ///
    /// # Errors
    /// [`BpfError::Map`]: the kernel refuses.
    pub fn new(name: &str, entries: u32) -> Result<Self, BpfError> {
        /// `BPF_F_NO_PREALLOC`
        const NO_PREALLOCATION: u32 = 1;
        let map = Hash::create(entries, NO_PREALLOCATION).map_err(failed(name, "made"))?;
        Ok(Self { name: name.to_owned(), map })
    }

    /// The value of a key; `None` if it isn't there.
    ///
    /// # Errors
    /// [`BpfError::Map`]: the kernel refuses.
    pub fn get(&self, key: K) -> Result<Option<V>, BpfError> {
        match self.map.get(&Plain(key), 0) {
            Ok(value) => Ok(Some(value.0)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(failed(&self.name, "read")(error)),
        }
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// [`BpfError::Map`]: it is full, or the kernel refuses.
    pub fn insert(&mut self, key: K, value: V) -> Result<(), BpfError> {
        self.map.insert(Plain(key), Plain(value), 0).map_err(failed(&self.name, "written"))
    }

    /// Takes a key away, if it is there.
    ///
    /// # Errors
    /// [`BpfError::Map`]: the kernel refuses.
    pub fn remove(&mut self, key: K) -> Result<(), BpfError> {
        or_missing(self.map.remove(&Plain(key))).map_err(failed(&self.name, "written"))
    }
}

/// Values by prefix of a key; the longest that is there counts.
pub struct PrefixMap<K: Value, V: Value> {
    name: String,
    map: LpmTrie<MapData, Plain<K>, Plain<V>>,
}

impl<K: Value, V: Value> PrefixMap<K, V> {
    /// Sets the value of the first `length` bits of a key.
    ///
    /// # Errors
    /// [`BpfError::Map`]: it is full, or the kernel refuses.
    pub fn insert(&mut self, length: u8, key: K, value: V) -> Result<(), BpfError> {
        let key = Key::new(u32::from(length), Plain(key));
        self.map.insert(&key, Plain(value), 0).map_err(failed(&self.name, "written"))
    }

    /// Takes a prefix away, if it is there.
    ///
    /// # Errors
    /// [`BpfError::Map`]: the kernel refuses.
    pub fn remove(&mut self, length: u8, key: K) -> Result<(), BpfError> {
        let key = Key::new(u32::from(length), Plain(key));
        or_missing(self.map.remove(&key)).map_err(failed(&self.name, "written"))
    }
}

/// Interfaces that XDP programs redirect to.
pub struct DeviceMap {
    name: String,
    map: DevMapHash<MapData>,
}

impl DeviceMap {
    /// Puts in the interface of this number, under it.
    ///
    /// # Errors
    /// [`BpfError::Map`]: it is full, there is no such interface, or the kernel refuses.
    pub fn insert(&mut self, interface: u32) -> Result<(), BpfError> {
        self.map.insert(interface, interface, None, 0).map_err(|error| BpfError::Map {
            map: self.name.clone(),
            action: "written",
            reason: sentence(&error),
        })
    }

    /// Takes an interface away, if it is there.
    ///
    /// # Errors
    /// [`BpfError::Map`]: the kernel refuses.
    pub fn remove(&mut self, interface: u32) -> Result<(), BpfError> {
        or_missing(self.map.remove(interface)).map_err(failed(&self.name, "written"))
    }
}

/// AF_XDP sockets that frames can be redirected to, by receive queue.
pub struct SocketMap {
    name: String,
    map: XskMap<MapData>,
}

impl SocketMap {
    /// Frames of this receive queue go to this socket from now on.
    ///
    /// # Errors
    /// [`BpfError::Map`]: there is no such queue, or the kernel refuses.
    pub fn set(&mut self, queue: u32, socket: impl AsFd) -> Result<(), BpfError> {
        self.map.set(queue, socket.as_fd(), 0).map_err(failed(&self.name, "written"))
    }
}

/// A place for a map that several objects share.
pub struct SharedMap {
    name: String,
    map: ArrayOfMaps<MapData>,
}

impl SharedMap {
    /// Puts a map in, which must be of the kind that the object says.
    ///
    /// # Errors
    /// [`BpfError::Map`]: it is of another kind, or the kernel refuses.
    pub fn set<K: Value, V: Value>(&mut self, shared: &HashMap<K, V>) -> Result<(), BpfError> {
        self.map.set(0, shared.map.map(), 0).map_err(failed(&self.name, "written"))
    }
}

/// What programs want user space to know, the oldest first.
pub struct QueueMap<V: Value> {
    name: String,
    map: Queue<MapData, Plain<V>>,
}

impl<V: Value> QueueMap<V> {
    /// Makes one that is of no object, to be put in a [`QueuePlace`]. It takes memory for so many entries.
    ///
    /// # Errors
    /// [`BpfError::Map`]: the kernel refuses.
    pub fn new(name: &str, entries: u32) -> Result<Self, BpfError> {
        let map = Queue::create(entries, 0).map_err(failed(name, "made"))?;
        Ok(Self { name: name.to_owned(), map })
    }

    /// Takes the oldest out; `None` if there is nothing.
    ///
    /// # Errors
    /// [`BpfError::Map`]: the kernel refuses.
    pub fn pop(&mut self) -> Result<Option<V>, BpfError> {
        match self.map.pop(0) {
            Ok(value) => Ok(Some(value.0)),
            Err(MapError::ElementNotFound) => Ok(None),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(failed(&self.name, "read")(error)),
        }
    }
}

/// A place for a queue that is there only now and then.
pub struct QueuePlace<V: Value> {
    name: String,
    map: ArrayOfMaps<MapData, Queue<MapData, Plain<V>>>,
}

impl<V: Value> QueuePlace<V> {
    /// Puts a queue in, in place of the one that is there.
    ///
    /// # Errors
    /// [`BpfError::Map`]: its values are of another size, or the kernel refuses.
    pub fn set(&mut self, queue: &QueueMap<V>) -> Result<(), BpfError> {
        self.map.set(0, &queue.map, 0).map_err(failed(&self.name, "written"))
    }
}

/// What is not there need not be taken away.
fn or_missing(result: Result<(), MapError>) -> Result<(), MapError> {
    match result {
        Err(error) if is_missing(&error) => Ok(()),
        other => other,
    }
}

fn is_missing(error: &MapError) -> bool {
    matches!(error, MapError::KeyNotFound)
        || crate::error::system_error(error).is_some_and(|error| error.raw_os_error() == Some(libc::ENOENT))
}

fn failed<'a>(map: &'a str, action: &'static str) -> impl Fn(MapError) -> BpfError + 'a {
    move |error| BpfError::Map { map: map.to_owned(), action, reason: sentence(&error) }
}
