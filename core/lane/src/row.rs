//! Stages one after the other: tuples.
//!
//! The outputs of a tuple are its stages' outputs in their order, and so are its inputs, but for the first input of each later
//! stage: that is where the stage before leads to.

use crate::inner::as_inner_stage;
use crate::outputs::Outputs;
use crate::stage::{Rehearsed, Stage};
use crate::trace::Explanation;
use crate::wake_ups::{WakeUps, sleep_all};
use std::any::Any;
use std::borrow::Cow;
use warmlane_counters::Source;
use warmlane_mem::{Burst, Packet};
use warmlane_port::TransmitOffloads;

/// Which of the stages of a row has this output, and the output's number there.
fn stage_of<'a>(stages: &[&'a dyn Stage], mut output: usize) -> Option<(&'a dyn Stage, usize)> {
    for stage in stages {
        let count = stage.output_count();
        if output < count {
            return Some((*stage, output));
        }
        output -= count;
    }
    None
}

/// Which of the stages of a row has this input, and the input's number there.
fn entry_of(counts: impl Iterator<Item = usize>, mut input: usize) -> Option<(usize, usize)> {
    for (stage, count) in counts.enumerate() {
        // The first input of each later stage is where the stage before leads to.
        let skipped = usize::from(stage > 0);
        if input + skipped < count {
            return Some((stage, input + skipped));
        }
        input -= count - skipped;
    }
    None
}

/// Asks each stage that the packet may come to, until one [closes](Explanation::close) the explanation. All of them see it as it came in, without
/// what earlier ones will change.
fn explain_all(stages: &[&dyn Stage], input: usize, packet: &Packet, explanation: &mut Explanation) {
    let Some((first, input)) = entry_of(stages.iter().map(|stage| stage.input_count()), input) else {
        return;
    };
    for (number, stage) in stages.iter().enumerate().skip(first) {
        stage.explain(if number == first { input } else { 0 }, packet, explanation);
        if explanation.is_closed() {
            return;
        }
    }
}

/// Rehearses stage after stage, as long as there are packets.
fn rehearse_all(
    stages: &mut [&mut dyn Stage],
    input: usize,
    burst: &mut Burst,
    outputs: &mut Outputs<'_>,
) -> Option<Rehearsed> {
    let (first, input) = entry_of(stages.iter().map(|stage| stage.input_count()), input)?;
    let (mut start, mut counted) = (0, Vec::new());
    for (number, stage) in stages.iter_mut().enumerate() {
        let count = stage.output_count();
        if number >= first && !burst.is_empty() {
            let input = if number == first { input } else { 0 };
            counted.extend(stage.rehearse(input, burst, &mut outputs.part(start, count))?);
        }
        start += count;
    }
    Some(counted)
}

macro_rules! row {
    ($first:ident $first_index:tt $(, $stage:ident $index:tt)+) => {
        #[deny(clippy::missing_trait_methods)]
        impl<$first: Stage, $($stage: Stage),+> Stage for ($first, $($stage),+) {
            #[inline]
            fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
                let mut start = self.$first_index.output_count();
                self.$first_index.process(burst, &mut outputs.part(0, start));
                $(
                    if burst.is_empty() {
                        return;
                    }
                    let count = self.$index.output_count();
                    self.$index.process(burst, &mut outputs.part(start, count));
                    start += count;
                )+
                let _ = start;
            }

            fn name(&self) -> Cow<'static, str> {
                let mut name = self.$first_index.name().into_owned();
                $(
                    name.push_str(", ");
                    name.push_str(&self.$index.name());
                )+
                Cow::Owned(name)
            }

            fn outputs(&self) -> &'static [&'static str] {
                &[]
            }

            #[inline]
            fn output_count(&self) -> usize {
                self.$first_index.output_count() $(+ self.$index.output_count())+
            }

            fn output_name(&self, output: usize) -> Cow<'static, str> {
                match stage_of(&[&self.$first_index $(, &self.$index)+], output) {
                    Some((stage, output)) => stage.output_name(output),
                    None => Cow::Owned(format!("output{output}")),
                }
            }

            fn input_count(&self) -> usize {
                self.$first_index.input_count() $(+ self.$index.input_count() - 1)+
            }

            fn accepts(&self) -> TransmitOffloads {
                self.$first_index.accepts() $(.and(self.$index.accepts()))+
            }

            fn leaves(&self) -> TransmitOffloads {
                self.$first_index.leaves() $(.or(self.$index.leaves()))+
            }

            fn is_optional(&self, output: usize) -> bool {
                let stage = stage_of(&[&self.$first_index $(, &self.$index)+], output);
                stage.is_some_and(|(stage, output)| stage.is_optional(output))
            }

            fn passes_on(&self) -> bool {
                self.$first_index.passes_on() $(&& self.$index.passes_on())+
            }

            fn unreachable(&self) -> Option<Cow<'static, str>> {
                let mut found = self.$first_index.unreachable();
                let mut is_reached = self.$first_index.passes_on();
                $(
                    let name = || Some(self.$index.name());
                    found = found.or_else(|| if is_reached { self.$index.unreachable() } else { name() });
                    is_reached = self.$index.passes_on();
                )+
                let _ = is_reached;
                found
            }

            fn input_name(&self, input: usize) -> Cow<'static, str> {
                let mut input = input;
                if input < self.$first_index.input_count() {
                    return self.$first_index.input_name(input);
                }
                input -= self.$first_index.input_count();
                $(
                    if input + 1 < self.$index.input_count() {
                        return self.$index.input_name(input + 1);
                    }
                    input -= self.$index.input_count() - 1;
                )+
                Cow::Owned(format!("input{input}"))
            }

            fn process_input(&mut self, input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) {
                // Where the packets come in, counted from the stage at hand; `None` once they are in.
                let mut entry = Some(input);
                let mut start = self.$first_index.output_count();
                if input < self.$first_index.input_count() {
                    self.$first_index.process_input(input, burst, &mut outputs.part(0, start));
                    entry = None;
                } else {
                    entry = entry.map(|input| input - self.$first_index.input_count() + 1);
                }
                $(
                    let count = self.$index.output_count();
                    match entry {
                        None if burst.is_empty() => return,
                        None => self.$index.process(burst, &mut outputs.part(start, count)),
                        Some(input) if input < self.$index.input_count() => {
                            self.$index.process_input(input, burst, &mut outputs.part(start, count));
                            entry = None;
                        }
                        Some(input) => entry = Some(input - self.$index.input_count() + 1),
                    }
                    start += count;
                )+
                let _ = (start, entry);
            }

            fn is_polled(&self) -> bool {
                self.$first_index.is_polled() $(|| self.$index.is_polled())+
            }

            #[inline]
            fn poll(&mut self, now: u64, burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
                let (mut start, mut made) = (self.$first_index.output_count(), 0);
                if self.$first_index.is_polled() {
                    made += self.$first_index.poll(now, burst, &mut outputs.part(0, start));
                }
                $(
                    let count = self.$index.output_count();
                    if !burst.is_empty() {
                        self.$index.process(burst, &mut outputs.part(start, count));
                    }
                    if self.$index.is_polled() {
                        made += self.$index.poll(now, burst, &mut outputs.part(start, count));
                    }
                    start += count;
                )+
                let _ = start;
                made
            }

            fn idle(&mut self, outputs: &mut Outputs<'_>) {
                let mut start = self.$first_index.output_count();
                self.$first_index.idle(&mut outputs.part(0, start));
                $(
                    let count = self.$index.output_count();
                    self.$index.idle(&mut outputs.part(start, count));
                    start += count;
                )+
                let _ = start;
            }

            fn sleep(&mut self, wake_ups: WakeUps<'_>, then: &mut dyn FnMut(WakeUps<'_>)) {
                let stages: &mut [&mut dyn Stage] = &mut [&mut self.$first_index $(, &mut self.$index)+];
                sleep_all(stages, |stage, wake_ups, then| stage.sleep(wake_ups, then), wake_ups, then);
            }

            fn stop(&mut self) {
                self.$first_index.stop();
                $(self.$index.stop();)+
            }

            fn is_done(&self) -> bool {
                self.$first_index.is_done() $(&& self.$index.is_done())+
            }

            fn finish(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
                let mut start = self.$first_index.output_count();
                let mut count = self.$first_index.finish(burst, &mut outputs.part(0, start));
                $(
                    let outputs_here = self.$index.output_count();
                    if !burst.is_empty() {
                        self.$index.process(burst, &mut outputs.part(start, outputs_here));
                    }
                    count += self.$index.finish(burst, &mut outputs.part(start, outputs_here));
                    start += outputs_here;
                )+
                let _ = start;
                count
            }

            fn counters(&self) -> Vec<Box<dyn Source>> {
                let mut counters = self.$first_index.counters();
                $(counters.extend(self.$index.counters());)+
                counters
            }

            fn explain(&self, input: usize, packet: &Packet, explanation: &mut Explanation) {
                explain_all(&[&self.$first_index $(, &self.$index)+], input, packet, explanation);
            }

            fn rehearse(&mut self, input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) -> Option<Rehearsed> {
                rehearse_all(&mut [&mut self.$first_index $(, &mut self.$index)+], input, burst, outputs)
            }

            fn as_any(&mut self) -> Option<&mut dyn Any> {
                None
            }

            as_inner_stage!(every);
        }
    };
}

row!(A 0, B 1);
row!(A 0, B 1, C 2);
row!(A 0, B 1, C 2, D 3);
row!(A 0, B 1, C 2, D 3, E 4);
row!(A 0, B 1, C 2, D 3, E 4, F 5);
row!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
row!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
