//! Changes of the settings about the exit of this node: what is refused, and what a client is told.

use weft_config::Config;
use weft_control::Reply;
use weft_control::status::Reloaded;
use weft_os::clock::boottime_ms;

use super::run::Daemon;

/// The settings that a client is told the effect of.
const SETTINGS: [&str; 4] = ["tun.exit", "tun.exit_strict", "tun.exit_lan", "tun.exit_inbound"];

impl Daemon {
    /// Answers a change of the configuration once the system has carried out what it means for exits, and says
    /// what became of the exit.
    pub(super) fn answer_with_exit(&mut self, reply: Reply, document: Reloaded) {
        self.exits.waiting.push((reply, document));
        self.answer_settled();
    }

    /// Answers the clients that wait, if the system has carried out the orders.
    pub(super) fn answer_settled(&mut self) {
        if !self.exits.is_settled() {
            return;
        }
        for (reply, mut document) in std::mem::take(&mut self.exits.waiting) {
            if document.live.iter().any(|name| SETTINGS.contains(&&**name)) {
                document.notes.push(self.note_of_exit());
            }
            reply.ok(&document);
        }
    }

    /// Says in one line what becomes of packets to all other addresses.
    fn note_of_exit(&self) -> String {
        let config = &self.configuration.config;
        match self.exit_status(boottime_ms()) {
            Some(exit) if exit.strict => format!("exit {} (strict): {}", exit.exit, exit.why),
            Some(exit) => format!("exit {}: {}", exit.exit, exit.why),
            None if config.tun.exit_strict => {
                "no exit: packets leave directly; tun.exit_strict stays true, so that the next exit is strict, too"
                    .to_owned()
            }
            None => "no exit: packets leave directly".to_owned(),
        }
    }

    /// Refuses an exit that no member is, or this node itself.
    ///
    /// # Errors
    /// The reason, as a line for the user.
    pub(super) fn refuse_exit(&self, config: &Config) -> Result<(), String> {
        let Some(named) = &config.tun.exit else { return Ok(()) };
        let found = self.desired.members.named_exit(named);
        found.map(drop).map_err(|error| format!("tun.exit: {error}"))
    }
}
