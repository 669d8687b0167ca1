//! Measurements, cache model and plots
