//! Several independent pieces of work at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use warmlane_sys::affinity;

/// Does a thing with each item, on as many CPUs as there are at once, and hands over what came of it in the items' order. Ends early if
/// that fails, once what is under way is done.
pub(crate) fn in_parallel<'a, T: Sync, R: Send>(
    items: &'a [T],
    act: impl Fn(&'a T) -> R + Sync,
    mut take: impl FnMut(&'a T, R) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let workers = affinity::allowed_cpus()?.len();
    let (next, act) = (AtomicUsize::new(0), &act);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..workers {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some((number, item)) = {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    items.get(number).map(|item| (number, item))
                } {
                    if sender.send((number, act(item))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let mut waited_for = 0;
        for (number, result) in &receiver {
            early.insert(number, result);
            while let Some(result) = early.remove(&waited_for) {
                if let Err(error) = take(&items[waited_for], result) {
                    // Whoever is at it ends with what it has.
                    drop(receiver);
                    return Err(error);
                }
                waited_for += 1;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_in_parallel_is_handed_over_in_order() {
        let items: Vec<u64> = (0..50).collect();
        let mut taken = Vec::new();
        let slow_first = |item: &u64| {
            thread::sleep(std::time::Duration::from_millis(if *item == 0 { 20 } else { 0 }));
            2 * item
        };
        let take = |item: &u64, result| {
            taken.push((*item, result));
            Ok(())
        };
        in_parallel(&items, slow_first, take).unwrap();
        assert_eq!(taken, items.iter().map(|item| (*item, 2 * item)).collect::<Vec<_>>());
        let error = in_parallel(
            &items,
            |item| *item,
            |_, result| {
                anyhow::ensure!(result < 7, "{result} is too much");
                Ok(())
            },
        );
        assert_eq!(error.unwrap_err().to_string(), "7 is too much");
    }
}
