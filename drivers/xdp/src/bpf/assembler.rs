//! Writes eBPF instructions (RFC 9669).
//!
//! Only what our programs need: 64-bit arithmetic, loads, conditional jumps forward, calls of the kernel's helpers and
//! references to maps.

/// One instruction, as the kernel takes it (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    /// Destination in the lower four bits, source in the upper four (of a little-endian kernel; the other way round
    /// on a big-endian one).
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

/// The registers. R0 is a call's result, R1 to R5 its arguments (lost by it), R6 to R9 survive calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    R0,
    R1,
    R2,
    R3,
    R6 = 6,
    R7,
    R8,
    R9,
}

/// How many bytes a load takes; shorter ones are extended by zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Byte = 0x10,
    Half = 0x08,
    Word = 0x00,
}

/// When to jump; comparisons are unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum If {
    Equal = 0x10,
    Greater = 0x20,
    GreaterOrEqual = 0x30,
    NotEqual = 0x50,
    LessOrEqual = 0xb0,
}

// RFC 9669, sections 3 and 4: classes, sources, operations.
pub(super) const LOAD_MEMORY: u8 = 0x61;
pub(super) const LOAD_WIDE: u8 = 0x18;
pub(super) const ALU_ADD: u8 = 0x07;
pub(super) const ALU_AND: u8 = 0x57;
pub(super) const ALU_SET: u8 = 0xb7;
pub(super) const ALU_MOVE: u8 = 0xbf;
pub(super) const JUMP_ALWAYS: u8 = 0x05;
pub(super) const JUMP_IMMEDIATE: u8 = 0x05;
pub(super) const JUMP_REGISTER: u8 = 0x0d;
pub(super) const CALL: u8 = 0x85;
pub(super) const EXIT: u8 = 0x95;
/// Marks the immediate of [`LOAD_WIDE`] as a map's file descriptor (`BPF_PSEUDO_MAP_FD`).
const MAP_DESCRIPTOR: u8 = 1;
/// Marks it as that of an array of one entry, and means where that entry's value is (`BPF_PSEUDO_MAP_VALUE`).
const MAP_VALUE: u8 = 2;

/// A place to jump to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label(usize);

/// A program in the making.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    instructions: Vec<Instruction>,
    /// Where each label is.
    labels: Vec<Option<usize>>,
    /// Jumps, and the labels that they go to.
    jumps: Vec<(usize, Label)>,
}

/// A label was jumped to but never placed, or is too far away or behind: a mistake in the program's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadLabel;

impl Assembler {
    fn push(&mut self, code: u8, destination: u8, source: u8, offset: i16, immediate: i32) {
        let registers = if cfg!(target_endian = "little") {
            source << 4 | destination
        } else {
            destination << 4 | source
        };
        self.instructions.push(Instruction { code, registers, offset, immediate });
    }

    /// `to = from`
    pub(crate) fn copy(&mut self, to: Register, from: Register) {
        self.push(ALU_MOVE, to as u8, from as u8, 0, 0);
    }

    /// `register = value`
    pub(crate) fn set(&mut self, register: Register, value: i32) {
        self.push(ALU_SET, register as u8, 0, 0, value);
    }

    /// `register += value`
    pub(crate) fn add(&mut self, register: Register, value: i32) {
        self.push(ALU_ADD, register as u8, 0, 0, value);
    }

    /// `register &= value`
    pub(crate) fn and(&mut self, register: Register, value: i32) {
        self.push(ALU_AND, register as u8, 0, 0, value);
    }

    /// `to = *(base + offset)`
    pub(crate) fn load(&mut self, width: Width, to: Register, base: Register, offset: i16) {
        self.push(LOAD_MEMORY | width as u8, to as u8, base as u8, offset, 0);
    }

    /// `register = map`
    pub(crate) fn map(&mut self, register: Register, descriptor: i32) {
        self.push(LOAD_WIDE, register as u8, MAP_DESCRIPTOR, 0, descriptor);
        // A 64-bit immediate takes two slots.
        self.push(0, 0, 0, 0, 0);
    }

    /// `register = where the map's only value is`; the map is an array of one entry.
    pub(crate) fn value(&mut self, register: Register, descriptor: i32) {
        self.push(LOAD_WIDE, register as u8, MAP_VALUE, 0, descriptor);
        self.push(0, 0, 0, 0, 0);
    }

    /// Calls a helper of the kernel.
    pub(crate) fn call(&mut self, helper: i32) {
        self.push(CALL, 0, 0, 0, helper);
    }

    /// Ends the program; R0 is its result.
    pub(crate) fn exit(&mut self) {
        self.push(EXIT, 0, 0, 0, 0);
    }

    /// A label to be placed later.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts the label here.
    pub(crate) fn place(&mut self, label: Label) {
        let here = self.instructions.len();
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = Some(here);
        }
    }

    /// Jumps to `label`.
    pub(crate) fn jump(&mut self, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(JUMP_ALWAYS, 0, 0, 0, 0);
    }

    /// Jumps to `label` if the comparison holds.
    pub(crate) fn jump_if(&mut self, register: Register, condition: If, value: i32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(JUMP_IMMEDIATE | condition as u8, register as u8, 0, 0, value);
    }

    /// Jumps to `label` if the comparison of two registers holds.
    pub(crate) fn jump_if_register(&mut self, one: Register, condition: If, other: Register, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(JUMP_REGISTER | condition as u8, one as u8, other as u8, 0, 0);
    }

    /// The finished program.
    ///
    /// # Errors
    /// [`BadLabel`].
    pub(crate) fn finish(mut self) -> Result<Vec<Instruction>, BadLabel> {
        for (jump, label) in self.jumps {
            let target = self.labels.get(label.0).copied().flatten().ok_or(BadLabel)?;
            // Jumps count from the instruction behind them; only forward ones are surely no loop.
            let distance = target.checked_sub(jump + 1).ok_or(BadLabel)?;
            let distance = i16::try_from(distance).map_err(|_| BadLabel)?;
            if let Some(instruction) = self.instructions.get_mut(jump) {
                instruction.offset = distance;
            }
        }
        Ok(self.instructions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn encodes_as_the_rfc_says() {
        let mut assembler = Assembler::default();
        let end = assembler.label();
        assembler.load(Width::Half, Register::R8, Register::R6, 12);
        assembler.jump_if(Register::R8, If::NotEqual, 8, end);
        assembler.copy(Register::R1, Register::R9);
        assembler.place(end);
        assembler.exit();
        let bytes: Vec<[u8; 8]> = assembler
            .finish()
            .unwrap()
            .iter()
            .map(|one| {
                let (offset, immediate) = (one.offset.to_le_bytes(), one.immediate.to_le_bytes());
                let mut bytes = [one.code, one.registers, offset[0], offset[1], 0, 0, 0, 0];
                bytes[4..].copy_from_slice(&immediate);
                bytes
            })
            .collect();
        // As llvm-objdump shows them: r8 = *(u16 *)(r6 + 12); if r8 != 8 goto +1; r1 = r9; exit
        assert_eq!(bytes[0], [0x69, 0x68, 12, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[1], [0x55, 0x08, 1, 0, 8, 0, 0, 0]);
        assert_eq!(bytes[2], [0xbf, 0x91, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[3], [0x95, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn refuses_labels_that_lead_nowhere() {
        let mut assembler = Assembler::default();
        let nowhere = assembler.label();
        assembler.jump(nowhere);
        assert_eq!(assembler.finish(), Err(BadLabel));
        let mut assembler = Assembler::default();
        let behind = assembler.label();
        assembler.place(behind);
        assembler.jump(behind);
        assert_eq!(assembler.finish(), Err(BadLabel));
    }
}
