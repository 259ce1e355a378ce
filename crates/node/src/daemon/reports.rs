//! Reports on their way from the lanes' threads to this thread.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use weft_contract::{Report, ReportQueue, bounds};

/// A bounded queue to which threads add reports, and from which one task takes them. Proofs and
/// handshakes come first, and one neighbour's reports leave room for those of others
/// ([`ReportQueue`]).
pub(super) struct Reports {
    queue: Mutex<ReportQueue<u8>>,
    news: Notify,
}

impl Reports {
    /// Creates an empty queue.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::new(ReportQueue::new(bounds::PROOFS)),
            news: Notify::new(),
        })
    }

    /// Queues the report of a lane, and returns the reports for which there is no room
    /// ([`ReportQueue::push`]). The lock is held only while a few reports are moved; this never
    /// waits for the core.
    pub(super) fn offer(&self, lane: u8, report: Report) -> Vec<Report> {
        let mut queue = self.lock();
        let first = queue.is_empty();
        let refused = queue.push(lane, report);
        drop(queue);
        if first {
            self.news.notify_one();
        }
        refused
    }

    /// Waits until there are reports.
    pub(super) async fn arrived(&self) {
        while self.lock().is_empty() {
            self.news.notified().await;
        }
    }

    /// Removes and returns the next reports, at most `most`, each with its lane.
    pub(super) fn take(&self, most: usize) -> Vec<(u8, Report)> {
        let mut queue = self.lock();
        std::iter::from_fn(|| queue.pop()).take(most).collect()
    }

    /// Locks the queue. A panic elsewhere leaves the queue consistent: reports are added and taken
    /// in one step.
    fn lock(&self) -> MutexGuard<'_, ReportQueue<u8>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use weft_contract::{LinkId, LinkReport, ReceiverIndex};

    use super::*;

    fn message(link: u32) -> Report {
        Report::Link(
            LinkId(link),
            LinkReport::Message {
                index: ReceiverIndex(0),
                msg_type: 0,
                body: vec![0; 64],
            },
        )
    }

    fn proof(index: u32) -> Report {
        Report::Link(
            LinkId(1),
            LinkReport::Proven {
                index: ReceiverIndex(index),
                proven: true,
                path: SocketAddr::from(([192, 0, 2, 1], 2121)).into(),
            },
        )
    }

    #[tokio::test]
    async fn flooding_threads_lose_no_proofs_and_no_others_reports() {
        let reports = Reports::new();
        let floods: Vec<_> = (0..3_u8)
            .map(|lane| {
                let reports = reports.clone();
                std::thread::spawn(move || {
                    (0..20_000)
                        .filter(|_| !reports.offer(lane, message(9)).is_empty())
                        .count()
                })
            })
            .collect();
        let quiet = {
            let reports = reports.clone();
            std::thread::spawn(move || {
                let refused =
                    |n: u32| !reports.offer(7, proof(n)).is_empty() || !reports.offer(7, message(1)).is_empty();
                (0..200).filter(|n| refused(*n)).count()
            })
        };
        let (mut proofs, mut messages) = (Vec::new(), 0);
        while proofs.len() < 200 || messages < 200 {
            reports.arrived().await;
            for (lane, report) in reports.take(32) {
                match report {
                    Report::Link(_, LinkReport::Proven { index, .. }) => proofs.push(index.0),
                    Report::Link(_, LinkReport::Message { .. }) if lane == 7 => messages += 1,
                    _ => {}
                }
            }
        }
        assert_eq!(quiet.join().ok(), Some(0));
        assert!(floods.into_iter().all(|flood| flood.join().is_ok()));
        assert_eq!(proofs, (0..200).collect::<Vec<_>>());
        while !reports.take(32).is_empty() {}
        assert_eq!(reports.lock().load().bytes, 0);
    }
}
