//! Drops that whoever captures them is shown.
//!
//! A queue that drops a packet counts it by [`CountDropped`], just before it is freed. While somebody captures drops, the lane calls its
//! queues [`while_watched`], and a watcher gets each such packet. As long as nobody does, that is one look at a flag for each drop, and
//! nothing for packets that aren't dropped.

use scoped_tls::scoped_thread_local;
use std::sync::Arc;
use warmlane_counters::{DropCounters, DropReason, Reason};
use warmlane_mem::Packet;

/// Who is shown what queues drop. It is called by the thread that drops, and must not wait.
pub trait DropWatcher: Send + Sync {
    /// Packets that are about to be freed. They have come in by the port of this number or, without one, by that which
    /// [`Packet::port`] says.
    fn dropped(&self, reason: &'static DropReason, packets: &[Packet], port: Option<u16>);

    /// The same of a frame that is in no buffer.
    fn dropped_frame(&self, reason: &'static DropReason, frame: &[u8], port: Option<u16>);
}

/// A queue's watcher.
pub struct Watch {
    /// Who is shown what the queue drops.
    pub watcher: Arc<dyn DropWatcher>,
    /// The number of a receive queue's port; what a transmit queue drops has it already.
    pub port: Option<u16>,
}

scoped_thread_local! {
    static WATCHED: Watch
}

/// Does something with a queue, while its watcher is shown what the queue drops.
#[inline]
pub fn while_watched<T>(watch: &Watch, work: impl FnOnce() -> T) -> T {
    WATCHED.set(watch, work)
}

#[cold]
fn show(show: impl FnOnce(&dyn DropWatcher, Option<u16>)) {
    WATCHED.with(|Watch { watcher, port }| show(&**watcher, *port));
}

/// Counts dropped packets, and shows them to whoever captures drops.
pub trait CountDropped<R> {
    /// Counts a packet that is about to be freed.
    fn count_packet(&self, reason: R, packet: &Packet);

    /// Counts packets that are about to be freed.
    fn count_packets(&self, reason: R, packets: &[Packet]);

    /// Counts a packet that is wrong, and of which only so much has been put together.
    fn count_found(&self, reason: R, found: Option<&Packet>);

    /// Counts a frame that lies in memory, but in no packet.
    fn count_frame(&self, reason: R, frame: &[u8]);
}

impl<R: Reason> CountDropped<R> for DropCounters<R> {
    #[inline]
    fn count_packet(&self, reason: R, packet: &Packet) {
        self.count_packets(reason, std::slice::from_ref(packet));
    }

    #[inline]
    fn count_packets(&self, reason: R, packets: &[Packet]) {
        self.count(reason, packets.len() as u64);
        if WATCHED.is_set()
            && let Some(reason) = R::ALL.get(reason.index())
        {
            show(|watcher, port| watcher.dropped(reason, packets, port));
        }
    }

    #[inline]
    fn count_found(&self, reason: R, found: Option<&Packet>) {
        match found {
            Some(packet) => self.count_packet(reason, packet),
            None => self.count(reason, 1),
        }
    }

    #[inline]
    fn count_frame(&self, reason: R, frame: &[u8]) {
        self.count(reason, 1);
        if WATCHED.is_set()
            && let Some(reason) = R::ALL.get(reason.index())
        {
            show(|watcher, port| watcher.dropped_frame(reason, frame, port));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;
    use warmlane_counters::drop_reasons;
    use warmlane_mem::{Pool, PoolConfig};

    drop_reasons! {
        /// Why the tests drop.
        enum Why {
            /// So.
            So: "so", Notice;
        }
    }

    type Shown = (&'static str, Vec<u8>, Option<u16>);

    #[derive(Default)]
    struct Seen(Mutex<Vec<Shown>>);

    impl Seen {
        fn count(&self) -> usize {
            self.0.lock().unwrap().len()
        }
    }

    impl DropWatcher for Seen {
        fn dropped(&self, reason: &'static DropReason, packets: &[Packet], port: Option<u16>) {
            for packet in packets {
                self.dropped_frame(reason, packet.data(), port);
            }
        }

        fn dropped_frame(&self, reason: &'static DropReason, frame: &[u8], port: Option<u16>) {
            self.0.lock().unwrap().push((reason.name, frame.to_vec(), port));
        }
    }

    #[test]
    fn what_is_dropped_is_shown_only_while_watched() {
        let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
        let mut packet = pool.take().unwrap();
        packet.fill(&[7; 60]).unwrap();
        let (drops, seen) = (DropCounters::new(), Arc::new(Seen::default()));
        let watcher: Arc<dyn DropWatcher> = seen.clone();
        drops.count_packet(Why::So, &packet);
        let watch = |port| Watch { watcher: Arc::clone(&watcher), port };
        while_watched(&watch(Some(3)), || drops.count_packet(Why::So, &packet));
        while_watched(&watch(None), || drops.count_frame(Why::So, b"a frame"));
        drops.count_frame(Why::So, b"another");
        let expected = [("so", vec![7; 60], Some(3)), ("so", b"a frame".to_vec(), None)];
        assert_eq!(*seen.0.lock().unwrap(), expected);
        assert_eq!(drops.get(Why::So), 4);
    }

    #[test]
    fn a_watcher_within_another_ends_with_its_own_queue_and_with_a_panic() {
        let (drops, outer, inner) =
            (DropCounters::new(), Arc::new(Seen::default()), Arc::new(Seen::default()));
        let watch = |seen: &Arc<Seen>| Watch { watcher: seen.clone(), port: None };
        let (watch_outer, watch_inner) = (watch(&outer), watch(&inner));
        while_watched(&watch_outer, || {
            while_watched(&watch_inner, || drops.count_frame(Why::So, b"1"));
            drops.count_frame(Why::So, b"2");
        });
        assert_eq!((outer.count(), inner.count()), (1, 1));
        let panics = || while_watched(&watch_outer, || panic!("a queue that panics"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        drops.count_frame(Why::So, b"3");
        assert_eq!(outer.count(), 1);
    }
}
