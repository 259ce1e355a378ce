//! The actions of `WANIPConnection` (UPnP Forum, 2010), and what an answer to one says.

use std::net::{Ipv4Addr, SocketAddrV4};

use weft_nostr::json::plain;

use super::http;
use super::xml::{self, BadXml};
use crate::port_mapping::LONGEST_TEXT;

/// The code of a refusal: another host has the port.
pub const CONFLICT: u16 = 718;
/// The code of a refusal: mappings have no end.
pub const ONLY_PERMANENT: u16 = 725;
/// The name of the mapping in the gateway's list.
const DESCRIPTION: &str = "weft";

/// A mapping that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The outer port.
    pub port: u16,
    /// The address and port inside.
    pub own: SocketAddrV4,
    /// For how many seconds; 0: without end.
    pub lifetime: u32,
}

/// What a service is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The outer address.
    Outer,
    /// A mapping of this port.
    Add(Mapping),
    /// A mapping of this port or of another one.
    AddAny(Mapping),
    /// The end of the mapping of a port.
    Delete {
        /// The outer port.
        port: u16,
    },
}

impl Action {
    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Outer => "GetExternalIPAddress",
            Self::Add(_) => "AddPortMapping",
            Self::AddAny(_) => "AddAnyPortMapping",
            Self::Delete { .. } => "DeletePortMapping",
        }
    }

    /// Emits the body of its request to a service of a kind.
    #[must_use]
    pub fn body(&self, kind: &str) -> String {
        let arguments = match self {
            Self::Outer => String::new(),
            Self::Add(Mapping { port, own, lifetime }) | Self::AddAny(Mapping { port, own, lifetime }) => format!(
                "{}<NewInternalPort>{}</NewInternalPort><NewInternalClient>{}</NewInternalClient>\
                 <NewEnabled>1</NewEnabled><NewPortMappingDescription>{DESCRIPTION}</NewPortMappingDescription>\
                 <NewLeaseDuration>{lifetime}</NewLeaseDuration>",
                outside(*port),
                own.port(),
                own.ip()
            ),
            Self::Delete { port } => outside(*port),
        };
        let name = self.name();
        format!(
            "<?xml version=\"1.0\"?>\r\n<s:Envelope xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\" \
             s:encodingStyle=\"http://schemas.xmlsoap.org/soap/encoding/\"><s:Body>\
             <u:{name} xmlns:u=\"{kind}\">{arguments}</u:{name}></s:Body></s:Envelope>\r\n"
        )
    }
}

fn outside(port: u16) -> String {
    format!("<NewRemoteHost></NewRemoteHost><NewExternalPort>{port}</NewExternalPort><NewProtocol>UDP</NewProtocol>")
}

/// What an answer says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The outer address.
    pub outer: Option<Ipv4Addr>,
    /// The port that the gateway has chosen.
    pub port: Option<u16>,
}

/// Why an action is not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDone {
    /// The gateway refuses; its text is escaped and cut.
    #[error("it refuses with error {code} ({text})")]
    Fault {
        /// The code.
        code: u16,
        /// The text.
        text: String,
    },
    /// The answer is a document that is not read.
    #[error(transparent)]
    Xml(#[from] BadXml),
    /// It says neither that the action is done nor that it is not.
    #[error("it answers with HTTP status {0} and does not say whether it is done")]
    Unclear(u16),
}

/// Reads the answer to an action.
///
/// # Errors
/// [`NotDone`]
pub fn read(status: u16, document: &str, action: &Action) -> Result<Said, NotDone> {
    let (mut said, mut code, mut text, mut done) = (Said::default(), None, String::new(), false);
    let read = xml::read(document, |name, value| match name {
        "NewExternalIPAddress" => said.outer = value.parse().ok(),
        "NewReservedPort" => said.port = value.parse().ok().filter(|port| *port != 0),
        "errorCode" => code = value.parse().ok(),
        "errorDescription" => text = plain(value, LONGEST_TEXT),
        _ => done |= name.strip_suffix("Response") == Some(action.name()),
    });
    match (read, code) {
        (Ok(()), Some(code)) => Err(NotDone::Fault { code, text }),
        (Ok(()), None) if done && status == http::OK => Ok(said),
        (Err(bad), _) if status == http::OK => Err(bad.into()),
        _ => Err(NotDone::Unclear(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(inside: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?><s:Envelope xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\">\
             <s:Body>{inside}</s:Body></s:Envelope>"
        )
    }

    fn fault(code: &str, text: &str) -> String {
        answer(&format!(
            "<s:Fault><faultcode>s:Client</faultcode><detail><UPnPError><errorCode>{code}</errorCode>\
             <errorDescription>{text}</errorDescription></UPnPError></detail></s:Fault>"
        ))
    }

    #[test]
    fn answers_say_what_is_done() {
        let outer = answer(
            "<u:GetExternalIPAddressResponse xmlns:u=\"x\"><NewExternalIPAddress>11.0.0.1</NewExternalIPAddress>\
             </u:GetExternalIPAddressResponse>",
        );
        let said = read(200, &outer, &Action::Outer).unwrap();
        assert_eq!(said.outer, Some(Ipv4Addr::new(11, 0, 0, 1)));
        let mapping = Mapping {
            port: 2_121,
            own: "192.168.1.2:2121".parse().unwrap(),
            lifetime: 3_600,
        };
        let added = answer("<u:AddPortMappingResponse xmlns:u=\"x\"/>");
        assert_eq!(read(200, &added, &Action::Add(mapping)), Ok(Said::default()));
        let any = answer(
            "<u:AddAnyPortMappingResponse><NewReservedPort>2122</NewReservedPort></u:AddAnyPortMappingResponse>",
        );
        assert_eq!(read(200, &any, &Action::AddAny(mapping)).unwrap().port, Some(2_122));
        // Of another action.
        assert_eq!(read(200, &added, &Action::Outer), Err(NotDone::Unclear(200)));
    }

    #[test]
    fn texts_of_refusals_are_plain_and_short() {
        let text = "A\u{202e}\u{2066}b\u{200b}\u{2028}c &#x1b;[31m&#x9b;d &lt;x&gt;";
        let refused = read(500, &fault("777", text), &Action::Outer).unwrap_err();
        let fffd = '\u{fffd}';
        assert_eq!(
            refused.to_string(),
            format!("it refuses with error 777 (A{fffd}{fffd}b{fffd}{fffd}c {fffd}[31m{fffd}d <x>)")
        );
        let long = fault("718", &"x".repeat(9_999));
        let NotDone::Fault { code, text } = read(500, &long, &Action::Outer).unwrap_err() else {
            panic!("a fault");
        };
        assert_eq!((code, text.len()), (CONFLICT, LONGEST_TEXT));
    }

    #[test]
    fn answers_that_are_not_understood_are_not_shown() {
        for (status, document, error) in [
            (500, "Some <b>text".to_owned(), NotDone::Unclear(500)),
            (
                404,
                "<html><body>Not found</body></html>".to_owned(),
                NotDone::Unclear(404),
            ),
            (302, String::new(), NotDone::Unclear(302)),
            (200, "Some text".to_owned(), NotDone::Xml(BadXml::Malformed)),
            (200, fault("x", ""), NotDone::Unclear(200)),
            (200, answer("<r:GetExternalIPAddress/>"), NotDone::Unclear(200)),
        ] {
            assert_eq!(read(status, &document, &Action::Outer), Err(error));
        }
    }

    #[test]
    fn a_request_has_the_arguments_in_their_order() {
        let mapping = Mapping {
            port: 2_122,
            own: "192.168.1.2:2121".parse().unwrap(),
            lifetime: 3_600,
        };
        let body = Action::Add(mapping).body("kind");
        let mut names = Vec::new();
        xml::read(&body, |name, text| names.push(format!("{name} {text}"))).unwrap();
        assert_eq!(
            names,
            [
                "NewRemoteHost ",
                "NewExternalPort 2122",
                "NewProtocol UDP",
                "NewInternalPort 2121",
                "NewInternalClient 192.168.1.2",
                "NewEnabled 1",
                "NewPortMappingDescription weft",
                "NewLeaseDuration 3600",
                "AddPortMapping ",
                "Body ",
                "Envelope "
            ]
        );
    }
}
