//! A compiled object: programs and the maps that they share.

use std::io;

use aya::maps::Map;
use aya::programs::{Program, ProgramError, TestRun as _, TestRunOptions};
use aya::{Ebpf, EbpfLoader, VerifierLogLevel};

use crate::attachment::{self, AttachPoint, Attachment};
use crate::error::{BpfError, end_of, sentence, system_error};
use crate::maps::{
    ArrayMap, DeviceMap, HashMap, PerCpuArrayMap, PrefixMap, QueueMap, QueuePlace, SharedMap, SocketMap,
    Value,
};

/// A compiled object whose maps are made. Its programs are loaded one by one, when they are attached; maps that are taken out have to
/// live until then.
pub struct Object {
    ebpf: Ebpf,
}

impl Object {
    /// Reads an object and makes its maps. `bytes` come from [`include_object!`](crate::include_object).
    ///
    /// # Errors
    /// [`BpfError::Permission`], [`BpfError::Object`].
    pub fn new(bytes: &[u8]) -> Result<Self, BpfError> {
        Self::with_entries(bytes, &[])
    }

    /// The same; maps of these names get space for so many entries, instead of what the source says.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_entries(bytes: &[u8], entries: &[(&str, u32)]) -> Result<Self, BpfError> {
        let mut loader = EbpfLoader::new();
        // The programs ask for no relocation by the kernel's types, so those needn't be read. The log is only made when a program is
        // refused.
        loader.btf(None).verifier_log_level(VerifierLogLevel::DEBUG);
        for (map, entries) in entries {
            loader.map_max_entries(map, *entries);
        }
        match loader.load(bytes) {
            Ok(ebpf) => Ok(Self { ebpf }),
            Err(error) => Err(match system_error(&error) {
                Some(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                    BpfError::Permission { action: "making BPF maps".to_owned(), source }
                }
                _ => BpfError::Object { reason: sentence(&error) },
            }),
        }
    }

    /// Takes out the array of this name.
    ///
    /// # Errors
    /// [`BpfError::Object`]: there is none (any more); [`BpfError::Map`]: its values are of another size.
    pub fn array<V: Value>(&mut self, name: &str) -> Result<ArrayMap<V>, BpfError> {
        ArrayMap::of(name, self.map(name)?)
    }

    /// Takes out the array of this name, of which each CPU has its own values.
    ///
    /// # Errors
    /// As [`array`](Self::array).
    pub fn per_cpu_array<V: Value>(&mut self, name: &str) -> Result<PerCpuArrayMap<V>, BpfError> {
        PerCpuArrayMap::of(name, self.map(name)?)
    }

    /// Takes out the hash map of this name.
    ///
    /// # Errors
    /// As [`array`](Self::array).
    pub fn hash<K: Value, V: Value>(&mut self, name: &str) -> Result<HashMap<K, V>, BpfError> {
        HashMap::of(name, self.map(name)?)
    }

    /// Takes out the map of this name of values by prefix.
    ///
    /// # Errors
    /// As [`array`](Self::array).
    pub fn prefixes<K: Value, V: Value>(&mut self, name: &str) -> Result<PrefixMap<K, V>, BpfError> {
        PrefixMap::of(name, self.map(name)?)
    }

    /// Takes out the map of this name of interfaces to redirect to.
    ///
    /// # Errors
    /// As [`array`](Self::array).
    pub fn devices(&mut self, name: &str) -> Result<DeviceMap, BpfError> {
        DeviceMap::of(name, self.map(name)?)
    }

    /// Takes out the map of this name of AF_XDP sockets to redirect to.
    ///
    /// # Errors
    /// As [`array`](Self::array).
    pub fn sockets(&mut self, name: &str) -> Result<SocketMap, BpfError> {
        SocketMap::of(name, self.map(name)?)
    }

    /// Takes out the place of this name for a map that several objects share.
    ///
    /// # Errors
    /// As [`array`](Self::array).
    pub fn shared(&mut self, name: &str) -> Result<SharedMap, BpfError> {
        SharedMap::of(name, self.map(name)?)
    }

    /// Takes out the queue of this name.
    ///
    /// # Errors
    /// As [`array`](Self::array).
    pub fn queue<V: Value>(&mut self, name: &str) -> Result<QueueMap<V>, BpfError> {
        QueueMap::of(name, self.map(name)?)
    }

    /// Takes out the place of this name for a queue that is there only now and then.
    ///
    /// # Errors
    /// As [`array`](Self::array).
    pub fn queue_place<V: Value>(&mut self, name: &str) -> Result<QueuePlace<V>, BpfError> {
        QueuePlace::of(name, self.map(name)?)
    }

    fn map(&mut self, name: &str) -> Result<Map, BpfError> {
        let missing = || BpfError::Object { reason: format!("it has no map {name:?}") };
        self.ebpf.take_map(name).ok_or_else(missing)
    }

    /// Loads a program, unless it was loaded before, and attaches it to an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`BpfError`] says who refused, and the remedy.
    pub fn attach(
        &mut self,
        program: &str,
        interface: &str,
        hook: AttachPoint,
    ) -> Result<Attachment, BpfError> {
        let code = self.loaded(program)?;
        attachment::attach(code, program, interface, hook)
    }

    /// Loads a program, unless it was loaded before, and has the kernel run it on a packet, which comes from no interface
    /// (`BPF_PROG_TEST_RUN`). Returns what the program returns. For tests: the packet goes nowhere.
    ///
    /// # Errors
    /// [`BpfError`] says who refused. The kernel takes no packet shorter than an Ethernet header.
    pub fn try_on(&mut self, program: &str, packet: &[u8]) -> Result<u32, BpfError> {
        let options = TestRunOptions { data_in: Some(packet), repeat: 1, ..TestRunOptions::default() };
        let result = match self.loaded(program)? {
            Program::Xdp(xdp) => xdp.test_run(options),
            Program::SchedClassifier(classifier) => classifier.test_run(options),
            _ => Err(ProgramError::UnexpectedProgramType),
        };
        match result {
            Ok(result) => Ok(result.return_value),
            Err(error) => Err(BpfError::Object { reason: sentence(&error) }),
        }
    }

    fn loaded(&mut self, program: &str) -> Result<&mut Program, BpfError> {
        let Some(code) = self.ebpf.program_mut(program) else {
            return Err(BpfError::Object { reason: format!("it has no program {program:?}") });
        };
        let loaded = match code {
            Program::Xdp(xdp) => xdp.load(),
            Program::SchedClassifier(classifier) => classifier.load(),
            _ => Err(ProgramError::UnexpectedProgramType),
        };
        match loaded {
            Ok(()) | Err(ProgramError::AlreadyLoaded) => Ok(code),
            Err(error) => Err(refused(program, error)),
        }
    }
}

fn refused(program: &str, error: ProgramError) -> BpfError {
    let program = program.to_owned();
    match error {
        ProgramError::LoadError { io_error, .. } if io_error.raw_os_error() == Some(libc::EPERM) => {
            BpfError::Permission { action: "loading a BPF program".to_owned(), source: io_error }
        }
        ProgramError::LoadError { io_error, verifier_log } => {
            let log = end_of(&verifier_log.to_string());
            BpfError::Refused { program, log, source: io_error }
        }
        other => BpfError::Object { reason: sentence(&other) },
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Object").finish_non_exhaustive()
    }
}
