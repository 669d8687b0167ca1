//! Where packets enter and leave: queues, capabilities, statistics, drop reasons
