//! Ports that need no hardware: null, ring pair, replay
