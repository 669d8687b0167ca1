//! For stages that stand around another one.

/// Methods of a [`Stage`](crate::Stage) that answer what the stage in its field `stage` does: those that are named. `shape` stands for
/// those that are asked while a pipeline is put together; `every` puts a timer around all of it. With
/// `deny(clippy::missing_trait_methods)` on the `impl`, a method that is neither named nor written is an error: so one that is added to
/// the trait can't be forgotten here.
macro_rules! as_inner_stage {
    ($($method:ident),+ $(,)?) => {
        $(crate::inner::as_inner_stage!(@$method);)+
    };
    (@shape) => {
        crate::inner::as_inner_stage!(name, outputs, output_count, output_name, is_optional, passes_on, unreachable);
        crate::inner::as_inner_stage!(accepts, leaves, input_count, input_name);
    };
    (@name) => { crate::inner::as_inner_stage!(@get name() -> std::borrow::Cow<'static, str>); };
    (@outputs) => { crate::inner::as_inner_stage!(@get outputs() -> &'static [&'static str]); };
    (@output_count) => { crate::inner::as_inner_stage!(@get output_count() -> usize); };
    (@output_name) => {
        crate::inner::as_inner_stage!(@get output_name(output: usize) -> std::borrow::Cow<'static, str>);
    };
    (@is_optional) => { crate::inner::as_inner_stage!(@get is_optional(output: usize) -> bool); };
    (@passes_on) => { crate::inner::as_inner_stage!(@get passes_on() -> bool); };
    (@unreachable) => {
        crate::inner::as_inner_stage!(@get unreachable() -> Option<std::borrow::Cow<'static, str>>);
    };
    (@accepts) => { crate::inner::as_inner_stage!(@get accepts() -> warmlane_port::TransmitOffloads); };
    (@leaves) => { crate::inner::as_inner_stage!(@get leaves() -> warmlane_port::TransmitOffloads); };
    (@input_count) => { crate::inner::as_inner_stage!(@get input_count() -> usize); };
    (@input_name) => {
        crate::inner::as_inner_stage!(@get input_name(input: usize) -> std::borrow::Cow<'static, str>);
    };
    (@process_input) => {
        crate::inner::as_inner_stage!(@do process_input(
            input: usize, burst: &mut warmlane_mem::Burst, outputs: &mut crate::Outputs<'_>
        ));
    };
    (@is_polled) => { crate::inner::as_inner_stage!(@get is_polled() -> bool); };
    (@poll) => {
        crate::inner::as_inner_stage!(@do poll(
            now: u64, burst: &mut warmlane_mem::Burst, outputs: &mut crate::Outputs<'_>
        ) -> usize);
    };
    (@idle) => { crate::inner::as_inner_stage!(@do idle(outputs: &mut crate::Outputs<'_>)); };
    (@sleep) => {
        crate::inner::as_inner_stage!(@do sleep(
            wake_ups: crate::WakeUps<'_>, then: &mut dyn FnMut(crate::WakeUps<'_>)
        ));
    };
    (@stop) => { crate::inner::as_inner_stage!(@do stop()); };
    (@is_done) => { crate::inner::as_inner_stage!(@get is_done() -> bool); };
    (@finish) => {
        crate::inner::as_inner_stage!(@do finish(
            burst: &mut warmlane_mem::Burst, outputs: &mut crate::Outputs<'_>
        ) -> usize);
    };
    (@counters) => { crate::inner::as_inner_stage!(@get counters() -> Vec<Box<dyn warmlane_counters::Source>>); };
    (@explain) => {
        crate::inner::as_inner_stage!(@get explain(
            input: usize, packet: &warmlane_mem::Packet, explanation: &mut crate::Explanation
        ));
    };
    (@rehearse) => {
        crate::inner::as_inner_stage!(@do rehearse(
            input: usize, burst: &mut warmlane_mem::Burst, outputs: &mut crate::Outputs<'_>
        ) -> Option<crate::Rehearsed>);
    };
    (@every) => {
        fn every<Action>(self, period: std::time::Duration, action: Action) -> crate::Every<Self, Action>
        where
            Action: FnMut(&mut Self, &mut crate::Outputs<'_>) + Send,
        {
            crate::Every::new(self, period, action)
        }
    };
    (@get $name:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)?) => {
        fn $name(&self $(, $argument: $type)*) $(-> $answer)? {
            self.stage.$name($($argument),*)
        }
    };
    (@do $name:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)?) => {
        fn $name(&mut self $(, $argument: $type)*) $(-> $answer)? {
            self.stage.$name($($argument),*)
        }
    };
}

pub(crate) use as_inner_stage;
