//! Reports of the lanes other than the first.

use weft_packet::{Layer, Report};

use super::Node;
use crate::lanes::Measured;

impl Node {
    /// Handles a report of the lane with this number, from 0. The lanes other than the first report
    /// on fast frames only: the same as the first one does, for frames of their own.
    pub fn handle_report_of(&mut self, now: u64, lane: u8, report: Report) {
        if self.ctx.config.lanes > 1 {
            match report {
                Report::Activity { links, sessions } => {
                    let links = links.into_iter().map(|told| self.lanes.link(lane, told)).collect();
                    let told = sessions.into_iter().map(|told| self.lanes.session(lane, told));
                    let sessions = told.collect();
                    return self.handle_report(now, Report::Activity { links, sessions });
                }
                Report::Measured {
                    on: Layer::Session(peer),
                    epoch,
                    sent,
                    clock,
                    report,
                } => {
                    let told = Measured {
                        epoch,
                        sent,
                        clock,
                        report,
                    };
                    let Some(all) = self.lanes.measured(peer, lane, told) else {
                        return;
                    };
                    return self.handle_report(
                        now,
                        Report::Measured {
                            on: Layer::Session(peer),
                            epoch: all.epoch,
                            sent: all.sent,
                            clock: all.clock,
                            report: all.report,
                        },
                    );
                }
                Report::FastProven { peer, id, .. } if lane > 0 => {
                    return self.with_peer(peer, |_, p| p.session.handle_lane_proven(now, id, lane));
                }
                _ => {}
            }
        }
        self.handle_report(now, report);
    }
}
