//! References to nodes in requests: the key that each means, before a command is carried out.

use weft_config::peer::NodeRef;
use weft_control::{ErrorCode, MemberCommand, NetworkCommand, Refusal};
use weft_desired::references::NotFound;
use weft_networks::{MemberChange, RuleChange};
use weft_noise::PublicKey;
use weft_nvpn::join::SCHEME;
use weft_os::clock::boottime_ms;

use super::run::Daemon;

impl Daemon {
    /// Finds the other node that a request is about.
    ///
    /// # Errors
    /// The [`Refusal`] to answer with.
    pub(super) fn find(&self, wanted: &NodeRef) -> Result<PublicKey, Refusal> {
        let found = self.desired.members.find_other(wanted);
        found.map_err(|error| {
            // An unknown node may appear later; this node never becomes another one.
            let code = match error {
                NotFound::Own(_) => ErrorCode::BadRequest,
                NotFound::Unknown { .. } | NotFound::Ambiguous { .. } => ErrorCode::UnknownPeer,
            };
            Refusal::new(code, error.to_string())
        })
    }

    /// Puts the npub in the place of each reference of a command about networks.
    ///
    /// # Errors
    /// The reason why one means no node, as a line for the user.
    pub(super) fn with_keys(&self, mut command: NetworkCommand) -> Result<NetworkCommand, String> {
        match &mut command {
            NetworkCommand::Member(MemberCommand {
                network,
                member,
                change,
                keep,
            }) => {
                let by = match change {
                    MemberChange::Replace { by } => Some(by),
                    _ => None,
                };
                let kept = keep.iter_mut().flat_map(|keep| &mut keep.admins);
                self.put_keys(network, std::iter::once(member).chain(by).chain(kept))?;
            }
            NetworkCommand::Successor { network, member, keep } => {
                let kept = keep.iter_mut().flat_map(|keep| &mut keep.admins);
                self.put_keys(network, member.iter_mut().chain(kept))?;
            }
            NetworkCommand::Signed { network, member, .. } => self.put_keys(network, member.iter_mut())?,
            NetworkCommand::Route { network, member, .. } => self.put_keys(network, std::iter::once(member))?,
            NetworkCommand::Rules { network, change } => {
                let rules = match change {
                    RuleChange::Add { rule, .. } => std::slice::from_mut(rule),
                    RuleChange::Set { rules } => rules,
                    RuleChange::Remove { .. } | RuleChange::Default { .. } => &mut [],
                };
                if let Some(of) = self.networks.named(network.as_deref()) {
                    for rule in rules {
                        *rule = self
                            .desired
                            .members
                            .rule_in(of, rule)
                            .map_err(|error| error.to_string())?;
                    }
                }
            }
            // The link of a device has its key.
            NetworkCommand::Approve { node, .. } if node.starts_with(SCHEME) => {}
            NetworkCommand::Approve { node, .. } | NetworkCommand::Deny { node } => {
                *node = self.requester(node)?.to_string();
            }
            _ => {}
        }
        Ok(command)
    }

    /// Replaces references to members of a network by npubs. `NAME.NETWORK.weft` chooses the network, unless it is
    /// chosen. Unreadable references, and those without a network, stay for the command to refuse.
    fn put_keys<'a>(
        &self,
        network: &mut Option<String>,
        named: impl Iterator<Item = &'a mut String>,
    ) -> Result<(), String> {
        for text in named {
            let Ok(wanted) = text.parse::<NodeRef>() else { continue };
            if let NodeRef::Member { network: of, .. } = &wanted {
                network.get_or_insert_with(|| of.to_string());
            }
            if let Some(of) = self.networks.named(network.as_deref()) {
                let found = self.desired.members.find_in(of, &wanted);
                *text = found.map_err(|error| error.to_string())?.to_string();
            }
        }
        Ok(())
    }

    /// Returns the key of a node that asks for membership. The node itself chooses the name in its request, so a name
    /// does not identify it.
    fn requester(&self, text: &str) -> Result<PublicKey, String> {
        let wanted = text.parse::<NodeRef>();
        let wanted = wanted.map_err(|error| format!("{} is {error}", text.escape_debug()))?;
        if let NodeRef::Key(key) = wanted {
            return Ok(key);
        }
        let waiting: Vec<_> = self.networks.requests(boottime_ms()).collect();
        if let Some((key, _)) = waiting.iter().find(|(key, _)| wanted.matches(key, None)) {
            return Ok(**key);
        }
        let is_named = |name: &str| matches!(&wanted, NodeRef::Name(wanted) if wanted.as_str() == name);
        let named = waiting
            .iter()
            .filter(|(_, request)| request.name.as_ref().is_some_and(|name| is_named(name.as_str())));
        let keys: Vec<String> = named.map(|(key, _)| key.to_string()).collect();
        match keys.is_empty() {
            true => Err(format!("no request of {wanted} waits; `weft requests` lists them")),
            false => Err(format!(
                "{wanted} is what a node calls itself; compare its key on both screens, and name it by that: {}",
                keys.join(", ")
            )),
        }
    }
}
