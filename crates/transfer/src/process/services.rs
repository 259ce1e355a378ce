//! The services and forwards of the user: kept, started again, listed.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use weft_config::peer::NodeRef;
use weft_control::status::{TransferPlace, Whois};
use weft_control::{ControlCommand, TransferPurpose};

use super::{Options, Process, nodes};
use crate::api::{ForwardStatus, Refusal, RefusalCode, SERVICES, ServiceList, ServiceRequest, ServiceStatus};
use crate::document::Setting as _;
use crate::forward::{Dial, Forwarding, Way};
use crate::keep::Beat;
use crate::link;
use crate::names::display;
use crate::serve::{self, Mesh, Serving, User};
use crate::services::{Forward, Local, Service, Services, ServicesError};
use crate::settings::SettingsError;

/// The pause between two looks at who may use services, and at the addresses of the node.
const LOOK: Duration = Duration::from_secs(10);

/// What the process has of services.
#[derive(Debug)]
pub(super) struct OfServices {
    file: PathBuf,
    control: PathBuf,
    kept: Mutex<Kept>,
    place: Mutex<Option<TransferPlace>>,
    pub(super) serving: Arc<Serving>,
}

#[derive(Debug)]
struct Kept {
    services: Services,
    running: Vec<(Local, Arc<Forwarding>)>,
}

fn refuse(code: RefusalCode, message: impl Into<String>) -> Refusal {
    Refusal {
        code,
        message: message.into(),
    }
}

impl From<ServicesError> for Refusal {
    fn from(error: ServicesError) -> Self {
        let code = match &error {
            ServicesError::File(_) => RefusalCode::Unsaved,
            ServicesError::Refused(_) => RefusalCode::Service,
        };
        refuse(code, error.to_string())
    }
}

impl OfServices {
    /// Reads the list, and starts what it has.
    pub(super) fn load(options: &Options) -> Result<Self, SettingsError> {
        let file = options.directory.join("services.json");
        let services = Services::load(&file)?;
        let control = options.control.clone();
        let serving = Arc::new(Serving::new(
            Box::new(move |address| who(&control, address)),
            Beat::default(),
        ));
        services.services.iter().cloned().for_each(|one| serving.add(one));
        let of = Self {
            file,
            control: options.control.clone(),
            kept: Mutex::new(Kept {
                running: Vec::new(),
                services,
            }),
            place: Mutex::default(),
            serving,
        };
        let mut kept = of.kept();
        let forwards = kept.services.forwards.clone();
        kept.running = forwards
            .iter()
            .map(|forward| (forward.local.clone(), of.start(forward).0))
            .collect();
        drop(kept);
        Ok(of)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // No code panics while it holds the lock.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self) -> MutexGuard<'_, Option<TransferPlace>> {
        // No code panics while it holds the lock.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries a request out. `why_not` says why no peer can come.
    pub(super) fn handle(&self, request: ServiceRequest, why_not: Option<String>) -> Result<ServiceList, Refusal> {
        let mut list = ServiceList {
            schema: SERVICES.to_owned(),
            services: Vec::new(),
            forwards: Vec::new(),
            why_not,
        };
        match request {
            ServiceRequest::List {} => {
                let kept = self.kept();
                list.forwards = kept.services.forwards.iter().map(|one| kept.of_forward(one)).collect();
                let services = kept.services.services.clone();
                // A target may let a look wait.
                drop(kept);
                list.services = self.of_services(&services);
            }
            ServiceRequest::Serve { target, to, name, port } => {
                let (default_name, default_port) = target.defaults()?;
                let service = Service {
                    name: name.unwrap_or(default_name),
                    port: port.or(default_port),
                    target,
                    to: nodes::audience(&self.control, to)?,
                };
                self.change(|services| services.serve(service.clone()))?;
                // Without a service the addresses of the node are not looked at.
                self.listen();
                self.serving.add(service.clone());
                if !self.kept().services.services.contains(&service) {
                    // It was removed meanwhile.
                    self.serving.remove(&service.name);
                }
                list.services = self.of_services(&[service]);
            }
            ServiceRequest::RemoveService { name } => {
                let service = self.change(|services| services.unserve(&name))?;
                self.serving.remove(&name);
                list.services.push(self.of_service(&service, None));
            }
            ServiceRequest::Forward {
                local,
                peer,
                user,
                service,
            } => {
                let node = nodes::one(&self.control, &peer)?;
                let forward = Forward {
                    local,
                    peer,
                    npub: Some(node.npub),
                    user,
                    service,
                };
                list.forwards.push(self.forward(&forward)?);
            }
            ServiceRequest::RemoveForward { local } => {
                let forward = self.change(|services| services.unforward(&local))?;
                let mut kept = self.kept();
                list.forwards.push(kept.of_forward(&forward));
                kept.stop(|one| *one == local);
            }
        }
        Ok(list)
    }

    /// Changes the list, if it can be kept.
    fn change<T>(&self, change: impl FnOnce(&mut Services) -> Result<T, ServicesError>) -> Result<T, ServicesError> {
        self.kept().services.change(&self.file, change)
    }

    /// Adds a forward, whose place is free.
    fn forward(&self, forward: &Forward) -> Result<ForwardStatus, Refusal> {
        let mut kept = self.kept();
        let mut changed = kept.services.clone();
        changed.forward(forward.clone())?;
        let (running, listens) = self.start(forward);
        let kept_it = listens
            .map_err(|why| refuse(RefusalCode::Service, format!("{why}; nothing is forwarded")))
            .and_then(|()| changed.save(&self.file).map_err(Refusal::from));
        if let Err(refusal) = kept_it {
            running.stop();
            return Err(refusal);
        }
        kept.services = changed;
        kept.running.push((forward.local.clone(), running));
        Ok(kept.of_forward(forward))
    }

    fn start(&self, forward: &Forward) -> (Arc<Forwarding>, Result<(), String>) {
        let control = self.control.clone();
        let peer = forward.npub.clone().unwrap_or_else(|| forward.peer.clone());
        let user = forward.user.clone();
        let dial: Dial = Box::new(move || {
            let opened = link::open_each(&control, &peer, user.clone(), TransferPurpose::Service)?;
            Ok(opened.into_iter().map(|one| Arc::new(one) as Arc<dyn Way>).collect())
        });
        Forwarding::start(forward.local.clone(), forward.service.clone(), dial, Beat::default())
    }

    /// Looks at the targets of services, all at the same time.
    fn of_services(&self, services: &[Service]) -> Vec<ServiceStatus> {
        thread::scope(|scope| {
            let look = |one: &Service| {
                let target = one.target.clone();
                thread::Builder::new().spawn_scoped(scope, move || serve::why_silent(&target))
            };
            let looks: Vec<_> = services.iter().map(look).collect();
            let silent = looks.into_iter().map(|look| look.ok()?.join().ok()?);
            let all = services.iter().zip(silent);
            all.map(|(one, silent)| self.of_service(one, silent)).collect()
        })
    }

    fn of_service(&self, service: &Service, silent: Option<String>) -> ServiceStatus {
        let state = self.serving.state(&service.name);
        ServiceStatus {
            name: service.name.clone(),
            target: service.target.to_string(),
            to: service.to.0.iter().map(ToString::to_string).collect(),
            port: service.port,
            at: state.at.iter().map(ToString::to_string).collect(),
            why: state.why,
            silent,
            connections: state.connections as u64,
        }
    }

    /// Notes where the node is, and listens there.
    pub(super) fn enter_mesh(&self, place: TransferPlace) {
        *self.place() = Some(place);
        self.listen();
    }

    /// Ends what listens at an interface that may be gone.
    pub(super) fn leave_mesh(&self, why: &str) {
        *self.place() = None;
        self.serving.unpublish(why);
    }

    /// Listens at the addresses that the node has at present.
    fn listen(&self) {
        if self.kept().services.services.is_empty() {
            return;
        }
        let place = self.place();
        let Some(place) = &*place else { return };
        let node = NodeRef::Address(IpAddr::V6(place.own));
        let whois = weft_control::call::<Whois>(&self.control, &ControlCommand::Whois { node });
        let Ok(whois) = whois else {
            // The addresses of before hold until the daemon answers.
            return;
        };
        let own = whois.nodes.into_iter();
        let networks = own.filter(|node| node.own).flat_map(|node| node.networks);
        let ipv4 = networks.filter_map(|network| network.ipv4).map(IpAddr::V4);
        let addresses = [IpAddr::V6(place.own)].into_iter().chain(ipv4).collect();
        self.serving.set_mesh(Ok(Mesh {
            interface: Some(place.interface.clone()),
            addresses,
        }));
    }

    /// Has forwards that are down try again.
    pub(super) fn nudge(&self) {
        self.kept().running.iter().for_each(|(_, one)| one.nudge());
    }

    /// Ends all connections.
    pub(super) fn stop(&self) {
        self.serving.stop();
        self.kept().stop(|_| true);
    }
}

impl Kept {
    fn of_forward(&self, forward: &Forward) -> ForwardStatus {
        let running = self.running.iter().find(|(local, _)| *local == forward.local);
        let state = running.map(|(_, one)| one.state()).unwrap_or_default();
        ForwardStatus {
            local: forward.local.to_string(),
            peer: display(forward.peer.as_bytes()),
            npub: forward.npub.clone(),
            user: forward.user.clone(),
            service: forward.service.clone(),
            up: state.up,
            why: state.why,
            connections: state.connections as u64,
            next_try_s: state.next_try.map(|left| left.as_secs()),
        }
    }

    fn stop(&mut self, which: impl Fn(&Local) -> bool) {
        self.running.retain(|(local, one)| {
            let ends = which(local);
            if ends {
                one.stop();
            }
            !ends
        });
    }
}

/// Asks the daemon for the node of an address.
fn who(control: &std::path::Path, address: IpAddr) -> Result<Option<User>, String> {
    let Some(node) = nodes::known(control, NodeRef::Address(address))? else {
        return Ok(None);
    };
    let tags = node.networks.iter().flat_map(|network| network.tags.clone());
    Ok(Some(User {
        address,
        npub: node.npub,
        tags: tags.collect(),
        networks: node
            .networks
            .iter()
            .filter_map(|network| network.network.clone())
            .collect(),
    }))
}

impl Process {
    /// Looks after services until the process ends.
    pub(super) fn look_after_services(self: &Arc<Self>) {
        while !self.is_stopping() {
            let plan = self.plan();
            // No code panics while it holds the lock.
            let _ = self.changed.wait_timeout_while(plan, LOOK, |_| !self.is_stopping());
            self.services.listen();
            self.services.serving.sweep();
            self.sweep_fetched();
        }
    }
}
