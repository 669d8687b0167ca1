//! Drops that whoever captures them is shown.
//!
//! A queue that drops a packet counts it by [`CountDropped`], just before it is freed. While somebody captures drops, the lane calls its
//! queues [`while_watched`], and a watcher gets each such packet. As long as nobody does, that is one look at a flag for each drop, and
//! nothing for packets that aren't dropped.

use std::cell::{Cell, RefCell};
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

struct Watched {
    watcher: Arc<dyn DropWatcher>,
    port: Option<u16>,
}

thread_local! {
    // By itself, so that a drop which nobody watches doesn't have the thread register what is to be freed at its end.
    static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
    static WATCHED: RefCell<Option<Watched>> = const { RefCell::new(None) };
}

/// Does something with a queue, while this watcher is shown what the queue drops. `port` is the number of a receive queue's port; what a
/// transmit queue drops has it already.
pub fn while_watched<T>(watcher: &Arc<dyn DropWatcher>, port: Option<u16>, work: impl FnOnce() -> T) -> T {
    /// Ends it, even if a queue panics.
    struct End(Option<Watched>);
    impl Drop for End {
        fn drop(&mut self) {
            let before = self.0.take();
            IS_WATCHED.set(before.is_some());
            // The thread's own end, where it has none any more.
            let _ = WATCHED.try_with(|watched| watched.replace(before));
        }
    }
    let new = Watched { watcher: Arc::clone(watcher), port };
    let _end = End(WATCHED.try_with(|watched| watched.replace(Some(new))).ok().flatten());
    IS_WATCHED.set(true);
    work()
}

#[cold]
fn show(show: impl FnOnce(&dyn DropWatcher, Option<u16>)) {
    let _ = WATCHED.try_with(|watched| {
        if let Some(Watched { watcher, port }) = &*watched.borrow() {
            show(&**watcher, *port);
        }
    });
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
        if IS_WATCHED.get()
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
        if IS_WATCHED.get()
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
        while_watched(&watcher, Some(3), || drops.count_packet(Why::So, &packet));
        while_watched(&watcher, None, || drops.count_frame(Why::So, b"a frame"));
        drops.count_frame(Why::So, b"another");
        let expected = [("so", vec![7; 60], Some(3)), ("so", b"a frame".to_vec(), None)];
        assert_eq!(*seen.0.lock().unwrap(), expected);
        assert_eq!(drops.get(Why::So), 4);
    }

    #[test]
    fn a_watcher_within_another_ends_with_its_own_queue_and_with_a_panic() {
        let (drops, outer, inner) =
            (DropCounters::new(), Arc::new(Seen::default()), Arc::new(Seen::default()));
        let (watch_outer, watch_inner): (Arc<dyn DropWatcher>, Arc<dyn DropWatcher>) =
            (outer.clone(), inner.clone());
        while_watched(&watch_outer, None, || {
            while_watched(&watch_inner, None, || drops.count_frame(Why::So, b"1"));
            drops.count_frame(Why::So, b"2");
        });
        assert_eq!((outer.count(), inner.count()), (1, 1));
        let panics = || while_watched(&watch_outer, None, || panic!("a queue that panics"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        drops.count_frame(Why::So, b"3");
        assert_eq!(outer.count(), 1);
    }
}
