//! What this node does by itself as an administrator.

use super::Networks;

impl Networks {
    /// Does what is due as an administrator and no other one did first: makes the secrets that networks
    /// lack, and writes down the names that settled collisions.
    pub fn act_as_admin(&mut self, (now, unix): (u64, u64)) {
        for network in self.all.values_mut() {
            if network.is_secret_due(&self.own, now) {
                network.replace_secret(&self.identity, self.rng.random_bytes(), (now, unix));
            }
            if network.are_names_due(&self.own, now) {
                network.write_names(&self.identity, (now, unix));
                self.changed = true;
            }
        }
    }

    /// Puts off what is due as an administrator: it could not be saved.
    pub fn put_off_duties(&mut self, now: u64) {
        for network in self.all.values_mut() {
            network.put_off_duties(&self.own, now);
        }
    }
}
