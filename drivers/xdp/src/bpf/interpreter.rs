//! Runs our programs in user space, for their tests: every access is checked, and anything unknown is a panic.

use super::assembler::{
    ALU_ADD, ALU_AND, ALU_MOVE, ALU_SET, CALL, EXIT, Instruction, JUMP_ALWAYS, LOAD_WIDE,
};
use super::steering::{CONTEXT_DATA, CONTEXT_DATA_END, CONTEXT_QUEUE, MAP_LOOKUP, REDIRECT_MAP};
use std::collections::HashSet;

/// Where things are in the machine's memory.
const CONTEXT: u64 = 0x1000;
const PACKET: u64 = 0x10_0000;
const MAP: u64 = 1 << 40;
const MAP_VALUE: u64 = 2 << 40;
const MAC: u64 = 3 << 40;

/// More steps than a program without loops can need.
const STEPS: usize = 1000;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It returned this.
    Returned(u64),
    /// It returned what redirecting to this entry of this map gave.
    Redirected { map: i32, key: u64 },
}

/// The machine: maps, and a receive queue that packets come from.
pub(crate) struct Machine {
    queue: u32,
    /// The only value of the only map that programs look into without a call.
    mac: [u8; 8],
    keys: HashSet<(i32, Vec<u8>)>,
}

impl Machine {
    pub(crate) fn new(queue: u32, mac: [u8; 8]) -> Self {
        Self { queue, mac, keys: HashSet::new() }
    }

    pub(crate) fn insert(&mut self, map: i32, key: &[u8]) {
        self.keys.insert((map, key.to_vec()));
    }

    pub(crate) fn run(&mut self, program: &[Instruction], packet: &[u8]) -> Outcome {
        let mut registers = [0xdead_u64 << 48; 11];
        registers[1] = CONTEXT;
        let mut redirected = None;
        let mut next = 0;
        for _ in 0..STEPS {
            let one = program[next];
            next += 1;
            let (to, from) = if cfg!(target_endian = "little") {
                (usize::from(one.registers & 15), usize::from(one.registers >> 4))
            } else {
                (usize::from(one.registers >> 4), usize::from(one.registers & 15))
            };
            let immediate = i64::from(one.immediate).cast_unsigned();
            let jump = |next: usize| next + usize::try_from(one.offset).expect("jumps go forward");
            match one.code {
                ALU_MOVE => registers[to] = registers[from],
                ALU_SET => registers[to] = immediate,
                ALU_ADD => registers[to] = registers[to].wrapping_add(immediate),
                ALU_AND => registers[to] &= immediate,
                LOAD_WIDE => {
                    registers[to] = match (from, one.immediate) {
                        (1, _) => MAP + immediate,
                        (2, map) if map == super::steering::tests::MAPS.mac => MAC,
                        other => panic!("neither a map nor a value: {other:?}"),
                    };
                    next += 1;
                }
                0x61 if registers[from] == CONTEXT => {
                    registers[to] = match one.offset {
                        CONTEXT_DATA => PACKET,
                        CONTEXT_DATA_END => PACKET + packet.len() as u64,
                        CONTEXT_QUEUE => u64::from(self.queue),
                        other => panic!("unknown field {other} of the context"),
                    };
                }
                0x61 | 0x69 | 0x71 => {
                    let width = match one.code {
                        0x61 => 4,
                        0x69 => 2,
                        _ => 1,
                    };
                    let at = registers[from].wrapping_add_signed(i64::from(one.offset));
                    let bytes = match at.checked_sub(MAC) {
                        Some(offset) => &self.mac[offset as usize..offset as usize + width],
                        None => read(packet, at, width),
                    };
                    registers[to] = match *bytes {
                        [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
                        [a, b] => u64::from(u16::from_ne_bytes([a, b])),
                        _ => u64::from(bytes[0]),
                    };
                }
                JUMP_ALWAYS => next = jump(next),
                CALL => {
                    let [first, second] = [registers[1], registers[2]];
                    registers[0] = match one.immediate {
                        MAP_LOOKUP => {
                            let map = (first - MAP) as i32;
                            let width = if map == super::steering::tests::MAPS.ipv4 { 4 } else { 16 };
                            let key = read(packet, second, width).to_vec();
                            if self.keys.contains(&(map, key)) { MAP_VALUE } else { 0 }
                        }
                        REDIRECT_MAP => {
                            redirected = Some(Outcome::Redirected { map: (first - MAP) as i32, key: second });
                            4
                        }
                        other => panic!("unknown helper {other}"),
                    };
                    // Lost, as in the kernel.
                    registers[1..6].fill(0xdead_u64 << 48);
                }
                EXIT => return redirected.unwrap_or(Outcome::Returned(registers[0])),
                code if code & 7 == 5 => {
                    let value = if code & 8 == 8 { registers[from] } else { immediate };
                    let holds = match code & 0xf0 {
                        0x10 => registers[to] == value,
                        0x20 => registers[to] > value,
                        0x30 => registers[to] >= value,
                        0x50 => registers[to] != value,
                        0xb0 => registers[to] <= value,
                        other => panic!("unknown comparison {other:#x}"),
                    };
                    if holds {
                        next = jump(next);
                    }
                }
                code => panic!("unknown instruction {code:#x}"),
            }
        }
        panic!("the program does not end")
    }
}

fn read(packet: &[u8], at: u64, width: usize) -> &[u8] {
    let start = at.checked_sub(PACKET).expect("an address in the packet") as usize;
    packet.get(start..start + width).expect("an access inside the packet")
}
