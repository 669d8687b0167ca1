//! A plan in sentences.

use super::{CacheShape, Demands, Plan, Weighed};
use crate::header::HEADER_BYTES;
use std::fmt::{self, Write as _};
use warmlane_sys::pages::HUGE_2M_BYTES;

impl Plan {
    /// Why this layout, in sentences, one paragraph a line.
    pub fn explanation(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.explain(&mut text);
        text
    }

    fn explain(&self, text: &mut String) -> fmt::Result {
        let lines = self.stride / HEADER_BYTES;
        let parity = if lines.is_multiple_of(2) { "even" } else { "odd" };
        write!(
            text,
            "A buffer needs {} bytes; buffers stand {} bytes apart, which is {lines} cache lines, an {parity} number",
            self.needed, self.stride,
        )?;
        match self.padding {
            Some(padding) => {
                let every = 1_u64 << padding.every_log2;
                write!(text, ", with {} bytes left free after every {every} buffers", padding.bytes)?;
            }
            None => text.push_str(", all at one distance"),
        }
        writeln!(text, ": {:.1} bytes a buffer are nobody's.", self.waste())?;
        self.explain_choice(text)?;
        for spread in &self.spreads {
            let shape = spread.shape;
            write!(
                text,
                "L{} ({} sets of {} ways): of the headers and first data lines of {} buffers, which would just fit, {:.0} % find a place; {} sets stay unused.",
                shape.level,
                shape.sets,
                shape.ways,
                shape.lines() / 2,
                spread.kept() * 100.0,
                spread.unused_sets(),
            )?;
            explain_pages(text, shape)?;
        }
        if self.spreads.is_empty() {
            text.push_str("The machine does not tell its caches; an odd number of lines uses every set of any cache with a power of two of them.\n");
        }
        for shape in &self.hashed {
            writeln!(
                text,
                "L{} ({} KiB, {} ways) picks a slice for each line by a hash of its physical address that its maker does not publish: no stride folds it and none can be planned for it. It has space for the two hot lines of {} buffers, or for {} buffers touched to the end, shared with every core beside it.",
                shape.level,
                shape.bytes() / 1024,
                shape.ways,
                shape.lines() / 2,
                shape.bytes() / self.stride.max(1),
            )?;
        }
        self.explain_memory(text)?;
        self.explain_demands(text)?;
        text.truncate(text.trim_end().len());
        Ok(())
    }

    /// What each way to spread the lines would waste.
    fn explain_choice(&self, text: &mut String) -> fmt::Result {
        let [constant, padded] = self.weighed[..] else { return Ok(()) };
        let describe = |way: Weighed| match way.layout.padding {
            None => format!("{} bytes from each buffer to the next", way.layout.stride),
            Some(padding) => format!(
                "{} bytes with {} more after every {} buffers",
                way.layout.stride,
                padding.bytes,
                1_u64 << padding.every_log2
            ),
        };
        let share = |way: Weighed| way.waste * 100.0 / self.needed as f64;
        write!(
            text,
            "Two ways were weighed: {} wastes {:.2} % of the memory and keeps {:.0} % of the hot lines, {} wastes {:.2} % and keeps {:.0} %.",
            describe(constant),
            share(constant),
            constant.kept * 100.0,
            describe(padded),
            share(padded),
            padded.kept * 100.0,
        )?;
        let chosen_is_constant = self.padding.is_none();
        let reason = match (chosen_is_constant, padded.allowed) {
            (true, false) if padded.waste < constant.waste => {
                " The second would waste less, but whoever uses this memory finds a buffer by one multiplication, so all stand at one distance."
            }
            (true, true) if constant.kept > padded.kept + 0.01 => " The first keeps more.",
            (true, _) => " The first wastes no more, and a buffer is found by one multiplication.",
            (false, _) if padded.kept > constant.kept + 0.01 => " The second keeps more.",
            (false, _) => " The second wastes less; finding a buffer takes a shift and an addition more.",
        };
        writeln!(text, "{reason}")
    }

    fn explain_memory(&self, text: &mut String) -> fmt::Result {
        let Some(channels) = &self.channels else {
            return writeln!(
                text,
                "Memory channels and ranks are not known, because no machine tells them to a program; given by hand (channels, ranks) they are planned for, too."
            );
        };
        let memory = channels.memory;
        writeln!(
            text,
            "Memory: {} channels of {} ranks that take turns every {} bytes, as DPDK's mempool takes them to: headers use {:.0} % of what can be under way at once. Controllers that hash more address bits spread them better than this says.",
            memory.channels,
            memory.ranks,
            memory.interleave,
            channels.used() * 100.0,
        )
    }

    fn explain_demands(&self, text: &mut String) -> fmt::Result {
        let Demands { alignment, largest_stride, largest_region, headroom, .. } = self.demands;
        if alignment > HEADER_BYTES {
            write!(text, "Ports demand buffers at multiples of {alignment} bytes")?;
            if largest_stride == Some(alignment) {
                write!(text, ", neither more nor less: nothing can be spread")?;
            }
            if self.lost() > 0 {
                write!(
                    text,
                    ". That costs {:.0} % of the hot lines; unaligned chunks would not",
                    (1.0 - self.kept()) * 100.0
                )?;
            }
            writeln!(text, ".")?;
        }
        if headroom > 0 {
            writeln!(text, "A port keeps {headroom} bytes of the headroom for itself.")?;
        }
        if let Some(largest) = largest_region {
            writeln!(text, "A port reaches {largest} bytes of one region.")?;
        }
        Ok(())
    }
}

/// Physical addresses decide about sets, and only inside a page are they those that the stride is counted in.
fn explain_pages(text: &mut String, shape: CacheShape) -> fmt::Result {
    let way = shape.way_bytes();
    match way {
        way if way <= 4_096 => writeln!(text),
        way if way <= HUGE_2M_BYTES => {
            writeln!(text, " That holds on pages of at least {} KiB.", way.next_power_of_two() / 1024)
        }
        _ => writeln!(
            text,
            " Not even 2 MiB pages reach around it, so the kernel's choice of pages counts, too."
        ),
    }
}
