//! The table of flows that the lanes of a node have in common.
//!
//! It begins with the first policy after a time without, and lasts as long as a lane has it. A lane
//! that is behind the others keeps the table of its own policy, so it adds nothing to a younger one.

use std::sync::{Arc, Mutex, Weak};

use weft_contract::FirstFlows;
use weft_contract::rules::Policy;

use super::flows::{FlowTable, lock};

/// Where the lanes of a node find their table of flows.
#[derive(Debug, Default)]
pub(crate) struct CommonFlows(Mutex<Latest>);

/// The youngest table, and the policy that it began with.
#[derive(Debug, Default)]
struct Latest {
    generation: u64,
    flows: Weak<FlowTable>,
}

impl CommonFlows {
    /// Returns the table that begins with a policy. The lane that applies the policy first fills it;
    /// the others wait for that.
    pub(super) fn of_policy(&self, now: u64, policy: &Policy, first: &FirstFlows) -> Arc<FlowTable> {
        let mut latest = lock(&self.0);
        let generation = policy.generation();
        let made = latest.flows.upgrade().filter(|_| latest.generation == generation);
        made.unwrap_or_else(|| {
            let flows = Arc::new(FlowTable::new(first.hash_key));
            flows.remember(now, policy, &first.known);
            if generation >= latest.generation {
                (latest.generation, latest.flows) = (generation, Arc::downgrade(&flows));
            }
            flows
        })
    }
}
