//! For stages that are polled and send all they have by named outputs.

/// Methods of such a [`Stage`](crate::Stage): its name, its outputs' names, and that it is polled and
/// [passes nothing on](crate::Stage::passes_on).
///
/// ```
/// # use warmlane_lane::{Outputs, Stage, polled_stage};
/// # use warmlane_mem::Burst;
/// struct Source;
///
/// impl Stage for Source {
///     polled_stage!("source", outputs: &["out"]);
///
///     fn process(&mut self, _burst: &mut Burst, _outputs: &mut Outputs<'_>) {}
/// }
///
/// assert!(Source.is_polled() && !Source.passes_on());
/// ```
#[macro_export]
macro_rules! polled_stage {
    ($name:literal, outputs: $outputs:expr) => {
        fn name(&self) -> std::borrow::Cow<'static, str> {
            std::borrow::Cow::Borrowed($name)
        }

        fn outputs(&self) -> &'static [&'static str] {
            $outputs
        }

        fn passes_on(&self) -> bool {
            false
        }

        fn is_polled(&self) -> bool {
            true
        }
    };
}
