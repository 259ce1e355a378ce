//! The firewall: which IP packets of peers go to the TUN, by rules and by the flows that are known.
//!
//! The receiver decides. A packet from a peer passes if it belongs to a flow that this host began,
//! or to a flow that the rules allow. Packets of this host always pass, and each makes its flow
//! known, whatever its TCP flags: answers find their way after a restart of the daemon, too. The
//! [`FlowTable`] is shared by all lanes, because each end of a flow picks its own lane.
//!
//! Without a [`Policy`](weft_contract::rules::Policy) nothing is checked. A lane remembers for a second what passed, so that most
//! packets cost one look-up in memory of the lane alone. A new policy begins with an empty memory.

mod check;
mod common;
mod flow_key;
mod flows;
mod held;
mod known;
mod recent;

pub use self::check::admits;
pub(crate) use self::check::{Firewall, Settled, Verdict};
pub(crate) use self::common::CommonFlows;
pub use self::flows::{FlowTable, MAX_FLOWS};

#[cfg(test)]
mod tests;
