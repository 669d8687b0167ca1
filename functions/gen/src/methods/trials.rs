//! Trials for methods, run by a [`Tester`].

use super::{Measure, Measured, MethodError, Request};
use crate::datapath::Pattern;
use crate::result::TrialResult;
use crate::samples::Sample;
use crate::trial::{Tester, TrialConfig};

/// Who looks on while a method is at work.
pub trait Watch {
    /// A trial goes on; `false` ends it, and the method with it.
    fn goes(&mut self, request: &Request, sample: &Sample) -> bool;

    /// A trial is over. It may be void.
    fn ended(&mut self, request: &Request, result: &TrialResult);
}

/// A [`Measure`] that sends and receives.
pub struct Trials<'a> {
    /// The lanes.
    pub tester: &'a mut Tester,
    /// What all trials have in common.
    pub config: TrialConfig,
    /// Who looks on.
    pub watch: &'a mut dyn Watch,
}

impl Trials<'_> {
    /// Runs one trial, in the pattern that the configuration says.
    ///
    /// # Errors
    /// [`MethodError::Trial`], and [`MethodError::Stopped`] if the watcher wants to end.
    pub fn run(&mut self, request: &Request, config: &TrialConfig) -> Result<TrialResult, MethodError> {
        let mut goes_on = true;
        let watch = &mut *self.watch;
        let result = self.tester.run(config, &mut |sample| {
            goes_on = goes_on && watch.goes(request, sample);
            goes_on
        });
        let result = result.map_err(|error| MethodError::Trial {
            packets_per_second: request.packets_per_second,
            problem: error.to_string(),
        })?;
        if !goes_on {
            return Err(MethodError::Stopped);
        }
        self.watch.ended(request, &result);
        Ok(result)
    }
}

impl Measure for Trials<'_> {
    fn measure(&mut self, request: &Request) -> Result<Measured, MethodError> {
        // Poisson and bursts stay what they are.
        let pattern = match &self.config.pattern {
            Pattern::Unpaced => Pattern::Constant,
            other => other.clone(),
        };
        let config = TrialConfig {
            pattern,
            packets_per_second: request.packets_per_second,
            duration: request.duration,
            count: request.count,
            ..self.config.clone()
        };
        let result = self.run(request, &config)?;
        let (received, latency) =
            result.received.map_or((0, None), |received| (received.packets, received.latency));
        Ok(Measured {
            packets_per_second: request.packets_per_second,
            sent_packets_per_second: result.sent_packets_per_second,
            seconds: result.seconds,
            sent: result.sent,
            received,
            void: result.void,
            latency,
        })
    }
}
