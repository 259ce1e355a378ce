//! `weft serve` and `weft forward`: services of one machine at another.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use serde_json::json;
use weft_config::peer::NodeRef;
use weft_transfer::api::{ForwardStatus, RawPath, Request, ServiceList, ServiceRequest, ServiceStatus};
use weft_transfer::audience::Party;
use weft_transfer::services::{Local, Target, check_name};

use super::text::shown;
use super::{call, target};
use crate::failure::Failure;
use crate::human::{self, clip, paragraph};
use crate::output::Out;
use crate::start::Place;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ServeArgs {
    #[command(subcommand)]
    action: Option<ServeAction>,
    /// The service: a TCP port of the loopback, its ADDR:PORT, or the path of a unix socket [default: list all]
    #[arg(value_parser = own_target)]
    target: Option<Target>,
    /// Who may use it; several times for several [default: all members of the own networks]
    #[arg(long, value_name = "MEMBER|tag:TAG|network:NETWORK", requires = "target")]
    to: Vec<Party>,
    /// Its name [default: the port, or the file name of the socket]
    #[arg(long, requires = "target", value_parser = name)]
    name: Option<String>,
    /// The TCP port at the mesh addresses of this node [default: that of the target]
    #[arg(long, requires = "target", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Print the document weft.services/1
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum ServeAction {
    /// List the services of this machine that members use, and the forwards
    List(Print),
    /// Remove a service, and end its connections
    Remove {
        /// Its name
        #[arg(value_parser = name)]
        name: String,
        #[command(flatten)]
        print: Print,
    },
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ForwardArgs {
    #[command(subcommand)]
    action: Option<ForwardAction>,
    /// Where programs of this machine find the service: a TCP port of the loopback, or the path of a unix socket
    /// [default: list all]
    #[arg(value_parser = local, requires = "remote")]
    local: Option<Local>,
    // No comment, in which an address in brackets would be a link.
    #[arg(
        value_name = "PEER:SERVICE",
        value_parser = Remote::read,
        help = "The peer: its name, NAME.NETWORK.weft, npub or address; behind a colon the name of the service, as nas:web \
                or [fd00::1]:web; in front of an @ the user there, as anna@nas:web"
    )]
    remote: Option<Remote>,
    /// Print the document weft.services/1
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum ForwardAction {
    /// List the services of peers that are brought to this machine, and the services of this one
    List(Print),
    /// Remove a forward, and end its connections
    Remove {
        /// The port, or the path of the socket
        #[arg(value_parser = local)]
        local: Local,
        #[command(flatten)]
        print: Print,
    },
}

#[derive(Clone, Copy, Debug, clap::Args)]
struct Print {
    /// Print the document weft.services/1
    #[arg(long)]
    json: bool,
}

/// The service of a peer: `USER@PEER:SERVICE`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Remote {
    user: Option<String>,
    peer: NodeRef,
    service: String,
}

impl Remote {
    fn read(text: &str) -> Result<Self, String> {
        let (user, peer, service) = target::parts(text)?;
        let service = service.ok_or("behind the peer is a colon and the name of the service, as nas:web")?;
        Ok(Self {
            user,
            peer: NodeRef::of_node(peer).map_err(|error| error.to_string())?,
            service: name(service)?,
        })
    }
}

fn name(text: &str) -> Result<String, String> {
    check_name(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// Reads a service of this machine. The path of a socket becomes absolute.
fn own_target(text: &str) -> Result<Target, String> {
    let target = match text.parse()? {
        Target::Unix(path) => Target::Unix(absolute(&path)?),
        target => target,
    };
    target.defaults().map_err(|error| error.to_string())?;
    Ok(target)
}

fn local(text: &str) -> Result<Local, String> {
    match text.parse()? {
        Local::Unix(path) => Ok(Local::Unix(absolute(&path)?)),
        Local::Port(0) => Err("choose a port from 1 on".to_owned()),
        local => Ok(local),
    }
}

fn absolute(path: &RawPath) -> Result<RawPath, String> {
    let path = std::path::absolute(PathBuf::from(path)).map_err(|error| error.to_string())?;
    match path.as_os_str().as_bytes().ends_with(b"/") {
        true => Err("a folder is no socket".to_owned()),
        false => Ok(RawPath::from(&*path)),
    }
}

pub(super) fn serve(place: &Place, args: ServeArgs) -> Result<(), Failure> {
    let (request, json, text): (_, _, fn(&ServiceList, usize) -> String) = match (args.action, args.target) {
        (Some(ServeAction::Remove { name, print }), _) => (ServiceRequest::RemoveService { name }, print.json, removed),
        (Some(ServeAction::List(print)), _) => (ServiceRequest::List {}, print.json, services),
        (None, None) => (ServiceRequest::List {}, args.json, services),
        (None, Some(target)) => {
            let (to, name, port) = (args.to, args.name, args.port);
            (ServiceRequest::Serve { target, to, name, port }, args.json, served)
        }
    };
    answer(place, request, json, text)
}

pub(super) fn forward(place: &Place, args: ForwardArgs) -> Result<(), Failure> {
    let (request, json, text): (_, _, fn(&ServiceList, usize) -> String) = match (args.action, args.local, args.remote)
    {
        (Some(ForwardAction::Remove { local, print }), ..) => {
            (ServiceRequest::RemoveForward { local }, print.json, removed)
        }
        (Some(ForwardAction::List(print)), ..) => (ServiceRequest::List {}, print.json, forwards),
        (None, Some(local), Some(Remote { user, peer, service })) => {
            let peer = peer.to_string();
            let request = ServiceRequest::Forward {
                local,
                peer,
                user,
                service,
            };
            (request, args.json, forwarded)
        }
        (None, ..) => (ServiceRequest::List {}, args.json, forwards),
    };
    answer(place, request, json, text)
}

fn answer(
    place: &Place,
    request: ServiceRequest,
    json: bool,
    text: fn(&ServiceList, usize) -> String,
) -> Result<(), Failure> {
    let list: ServiceList = call(place, &Request::Services(request))?;
    match json {
        true => Out::new().json(&json!(list)),
        false => Out::new().text(&text(&list, human::width())),
    }
}

/// Who may use a service, in words.
fn audience(one: &ServiceStatus) -> String {
    match one.to.is_empty() {
        true => "members".to_owned(),
        false => one.to.iter().map(|to| shown(to)).collect::<Vec<_>>().join(", "),
    }
}

/// Where members find a service, in words.
fn published(one: &ServiceStatus) -> String {
    let at = |port| format!("TCP port {port}");
    match (one.port, one.at.is_empty()) {
        (None, _) => "by name alone".to_owned(),
        (Some(port), false) => at(port),
        (Some(port), true) => format!("not {}", at(port)),
    }
}

fn served(list: &ServiceList, width: usize) -> String {
    let line = |one: &ServiceStatus| {
        let (name, to) = (shown(&one.name), audience(one));
        let served = format!("{name}: {} is served to {to}", shown(&one.target));
        let by_name = format!("there: `weft forward PORT THIS-NODE:{name}`");
        let how = match one.at.is_empty() {
            true => by_name,
            false => format!("{by_name}, or TCP port {} of this node", one.port.unwrap_or_default()),
        };
        paragraph(&served, width) + &note(Some(&how), width) + &notes(one, width)
    };
    list.services.iter().map(line).collect::<String>() + &why_not(list, width)
}

fn forwarded(list: &ServiceList, width: usize) -> String {
    let line = |one: &ForwardStatus| {
        let line = format!(
            "{} leads to {} from now on; `weft forward` shows whether it is up",
            shown(&one.local),
            remote(one)
        );
        paragraph(&line, width)
    };
    list.forwards.iter().map(line).collect()
}

fn removed(_: &ServiceList, _: usize) -> String {
    "removed\n".to_owned()
}

fn services(list: &ServiceList, width: usize) -> String {
    let mut text = match list.services.is_empty() {
        true => "No service of this machine is served; `weft serve PORT` serves one.\n".to_owned(),
        false => format!(
            "{:<16}  {:<22}  {:<16}  {:>5}  FOR\n",
            "NAME", "TARGET", "AT THE NODE", "USED"
        ),
    };
    for one in &list.services {
        let (name, target) = (clip(&shown(&one.name), 16), clip(&shown(&one.target), 22));
        let (at, used, to) = (published(one), one.connections, audience(one));
        text += &paragraph(&format!("{name:<16}  {target:<22}  {at:<16}  {used:>5}  {to}"), width);
        text += &notes(one, width);
    }
    text + &why_not(list, width)
}

/// What is wrong with a service.
fn notes(one: &ServiceStatus, width: usize) -> String {
    note(one.why.as_deref(), width) + &note(one.silent.as_deref(), width)
}

fn forwards(list: &ServiceList, width: usize) -> String {
    let mut text = match list.forwards.is_empty() {
        true => "No service of a peer is brought here; `weft forward PORT PEER:SERVICE` brings one.\n".to_owned(),
        false => format!("{:<22}  {:<5}  {:>5}  SERVICE\n", "HERE", "STATE", "USED"),
    };
    for one in &list.forwards {
        let (local, state) = (clip(&shown(&one.local), 22), if one.up { "up" } else { "down" });
        let (used, remote) = (one.connections, remote(one));
        text += &paragraph(&format!("{local:<22}  {state:<5}  {used:>5}  {remote}"), width);
        let next = one
            .next_try_s
            .filter(|_| !one.up)
            .map(|left| format!("; next try in {left} s"));
        let why = one.why.as_ref().map(|why| why.clone() + &next.unwrap_or_default());
        text += &note(why.as_deref(), width);
    }
    text
}

fn remote(one: &ForwardStatus) -> String {
    let user = one.user.as_ref().map(|user| format!("{}@", shown(user)));
    format!(
        "{}{}:{}",
        user.unwrap_or_default(),
        shown(&one.peer),
        shown(&one.service)
    )
}

fn note(why: Option<&str>, width: usize) -> String {
    why.map_or_else(String::new, |why| paragraph(&format!("    {}", shown(why)), width))
}

fn why_not(list: &ServiceList, width: usize) -> String {
    list.why_not.as_deref().map_or_else(String::new, |why| {
        paragraph(&format!("No peer can come at present: {}", shown(why)), width)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;

    #[test]
    fn remotes_have_a_peer_and_a_service() {
        for (text, user, peer, service) in [
            ("nas:web", None, "nas", "web"),
            ("anna@nas.home.weft:5432", Some("anna"), "nas.home.weft", "5432"),
            ("[fd00::1]:db.sock", None, "fd00::1", "db.sock"),
            ("10.44.3.4:web", None, "10.44.3.4", "web"),
        ] {
            let read = Remote::read(text).unwrap();
            assert_eq!(
                (read.user.as_deref(), &*read.peer.to_string(), &*read.service),
                (user, peer, service),
                "{text}"
            );
        }
        for (text, words) in [
            ("nas", "a colon and the name of the service"),
            ("nas:", "no name of a service"),
            ("nas:a b", "no name of a service"),
            ("@nas:web", "in front of the @"),
            ("fd00::1:web", "in brackets"),
            ("2001:db8::1", "a colon and the name"),
        ] {
            let error = Remote::read(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn services_are_listed_with_what_is_wrong() {
        let list: ServiceList = serde_json::from_value(json!({
            "schema": "weft.services/1", "why_not": null,
            "services": [
                {"name": "web", "target": "127.0.0.1:8080", "to": ["tag:family"], "port": 8080,
                 "at": ["[fd00::1]:8080"], "why": null, "connections": 2},
                {"name": "db", "target": "/run/db\u{1b}[2J", "to": [], "port": null, "at": [], "why": null,
                 "silent": "nothing answers at /run/db at present", "connections": 0},
                {"name": "low", "target": "127.0.0.1:80", "to": [], "port": 80, "at": [], "why": "no\nright", "connections": 0}
            ],
            "forwards": [
                {"local": "5432", "peer": "nas", "npub": null, "user": null, "service": "db", "up": true, "why": null,
                 "connections": 1, "next_try_s": null},
                {"local": "/run/x", "peer": "nas", "npub": null, "user": "anna", "service": "x", "up": false,
                 "why": "nas is not reached", "connections": 0, "next_try_s": 7}
            ]
        }))
        .unwrap();
        assert_eq!(
            services(&list, 100),
            "NAME              TARGET                  AT THE NODE        USED  FOR\n\
             web               127.0.0.1:8080          TCP port 8080         2  tag:family\n\
             db                /run/db?[2J             by name alone         0  members\n\
             \x20   nothing answers at /run/db at present\n\
             low               127.0.0.1:80            not TCP port 80       0  members\n\
             \x20   no?right\n"
        );
        assert_eq!(
            forwards(&list, 100),
            "HERE                    STATE   USED  SERVICE\n\
             5432                    up         1  nas:db\n\
             /run/x                  down       0  anna@nas:x\n\
             \x20   nas is not reached; next try in 7 s\n"
        );
    }
}
