//! Documents of a gateway, read in one pass. Nothing is kept but the text of the present element.

use std::net::Ipv4Addr;

use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesRef, Event};

use super::http::LONGEST;
use super::ssdp::Url;

/// The elements of a document at most, and how deep one is inside others.
pub const ELEMENTS: usize = 4_096;
/// See [`ELEMENTS`].
pub const DEPTH: usize = 32;
/// The services of a gateway that are asked at most.
pub const SERVICES: usize = 3;
/// The services that map ports, in the order in which they are preferred.
const KINDS: [&str; 3] = [
    "urn:schemas-upnp-org:service:WANIPConnection:2",
    "urn:schemas-upnp-org:service:WANIPConnection:1",
    "urn:schemas-upnp-org:service:WANPPPConnection:1",
];

/// Why a document is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadXml {
    /// Too many bytes or elements, or too deep.
    #[error("its document is over the limits")]
    OverLimit,
    /// A document type, which can define entities, or an entity that XML does not define.
    #[error("its document defines entities")]
    Entity,
    /// Not well formed.
    #[error("its document is no XML")]
    Malformed,
}

/// A service that maps ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its type.
    pub kind: &'static str,
    /// Where it is asked.
    pub control: Url,
}

impl Service {
    /// Whether it has `AddAnyPortMapping`.
    #[must_use]
    pub fn chooses_ports(&self) -> bool {
        self.kind == KINDS[0]
    }
}

/// Reads a document. `each` gets the elements as they end, with their local name and text.
///
/// # Errors
/// [`BadXml`]
pub fn read(document: &str, mut each: impl FnMut(&str, &str)) -> Result<(), BadXml> {
    // Bytes that were no UTF-8 have become longer.
    if document.len() > 3 * LONGEST {
        return Err(BadXml::OverLimit);
    }
    let mut reader = Reader::from_str(document.trim_start_matches('\u{feff}'));
    // Names of devices have it.
    reader.config_mut().allow_dangling_amp = true;
    let (mut depth, mut elements) = (0_usize, 0_usize);
    let mut text = String::new();
    loop {
        match reader.read_event().map_err(|_| BadXml::Malformed)? {
            Event::Start(_) => {
                depth += 1;
                elements += 1;
                text.clear();
            }
            Event::Empty(element) => {
                elements += 1;
                each(element.local_name().as_ref(), "");
                text.clear();
            }
            Event::End(element) => {
                depth = depth.saturating_sub(1);
                each(element.local_name().as_ref(), text.trim());
                text.clear();
            }
            Event::Text(part) => text.push_str(&part),
            Event::CData(part) => text.push_str(&part),
            Event::GeneralRef(part) => push_entity(&part, &mut text)?,
            Event::DocType(_) => return Err(BadXml::Entity),
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
            Event::Eof if depth == 0 && elements > 0 => return Ok(()),
            Event::Eof => return Err(BadXml::Malformed),
        }
        if depth > DEPTH || elements > ELEMENTS {
            return Err(BadXml::OverLimit);
        }
    }
}

fn push_entity(part: &BytesRef<'_>, text: &mut String) -> Result<(), BadXml> {
    match part.resolve_char_ref() {
        Ok(Some(char)) => text.push(char),
        Ok(None) => text.push_str(resolve_xml_entity(part).ok_or(BadXml::Entity)?),
        Err(_) => return Err(BadXml::Malformed),
    }
    Ok(())
}

/// Reads the services that map ports from the description of a device at a URL. What leads to another
/// host than the gateway is passed over.
///
/// # Errors
/// [`BadXml`]
pub fn services(document: &str, at: &Url, gateway: Ipv4Addr) -> Result<Vec<Service>, BadXml> {
    let mut found: Vec<(usize, Url)> = Vec::new();
    let mut base = at.clone();
    let (mut kind, mut control) = (None, None);
    read(document, |name, text| match name {
        "URLBase" => base = Url::read(text, gateway).unwrap_or_else(|| at.clone()),
        "serviceType" => kind = KINDS.iter().position(|kind| *kind == text),
        "controlURL" => control = base.join(text, gateway),
        "service" => {
            if let (Some(kind), Some(control)) = (kind.take(), control.take())
                && found.len() < SERVICES
            {
                found.push((kind, control));
            }
        }
        _ => {}
    })?;
    found.sort_by_key(|(kind, _)| *kind);
    let service = |(kind, control): (usize, Url)| Service {
        kind: KINDS[kind],
        control,
    };
    Ok(found.into_iter().map(service).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);

    fn at() -> Url {
        Url::read("http://192.168.1.1:5000/d.xml", GATEWAY).unwrap()
    }

    fn service(kind: &str, control: &str) -> String {
        format!("<service><serviceType>{kind}</serviceType><controlURL>{control}</controlURL></service>")
    }

    fn found(document: &str) -> Vec<String> {
        let services = services(document, &at(), GATEWAY).unwrap();
        services
            .iter()
            .map(|found| format!("{} {}", found.control.port, found.control.path))
            .collect()
    }

    #[test]
    fn services_come_in_the_order_of_their_kinds() {
        let list = [
            service(KINDS[2], "/ppp"),
            service("urn:schemas-upnp-org:service:Layer3Forwarding:1", "/l3f"),
            service(KINDS[1], "ip"),
        ];
        let document = format!(
            "<?xml version=\"1.0\"?>\n<root xmlns=\"urn:x\"><device><friendlyName>AT&T &amp; x</friendlyName>\
             <serviceList>{}</serviceList></device></root>",
            list.concat()
        );
        assert_eq!(found(&document), ["5000 /ip", "5000 /ppp"]);
        let based = document.replace("<device>", "<URLBase>http://192.168.1.1:81/x/</URLBase><device>");
        assert_eq!(found(&based), ["81 /x/ip", "81 /ppp"]);
        let foreign = document.replace("<device>", "<URLBase>http://192.168.1.66/</URLBase><device>");
        assert_eq!(found(&foreign), ["5000 /ip", "5000 /ppp"]);
        let prefixed = document
            .replace("<service>", "<u:service>")
            .replace("</service>", "</u:service>");
        assert_eq!(found(&prefixed), ["5000 /ip", "5000 /ppp"]);
    }

    #[test]
    fn services_at_other_hosts_are_passed_over() {
        let document = format!(
            "<r>{}{}</r>",
            service(KINDS[1], "http://10.0.0.1/ctl"),
            service(KINDS[1], "//x/ctl")
        );
        assert_eq!(found(&document), Vec::<String>::new());
        let many = format!("<r>{}</r>", service(KINDS[1], "/ctl").repeat(SERVICES + 1));
        assert_eq!(found(&many).len(), SERVICES);
    }

    #[test]
    fn hostile_documents_have_their_errors() {
        let nested = format!("{}{}", "<a>".repeat(DEPTH + 1), "</a>".repeat(DEPTH + 1));
        let many = format!("<r>{}</r>", "<a/>".repeat(ELEMENTS));
        let entities = "<!DOCTYPE r [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><r>&b;</r>";
        for (document, error) in [
            (nested.as_str(), BadXml::OverLimit),
            (&many, BadXml::OverLimit),
            (&"x".repeat(3 * LONGEST + 1), BadXml::OverLimit),
            (entities, BadXml::Entity),
            ("<r>&b;</r>", BadXml::Entity),
            ("<r>&#x110000;</r>", BadXml::Malformed),
            ("", BadXml::Malformed),
            ("A text", BadXml::Malformed),
            ("<r><a></r>", BadXml::Malformed),
            ("<r>", BadXml::Malformed),
            ("</r>", BadXml::Malformed),
        ] {
            let start: String = document.chars().take(40).collect();
            assert_eq!(read(document, |_, _| ()), Err(error), "{start}");
        }
    }

    #[test]
    fn namespaces_and_attributes_cost_their_bytes_alone() {
        let namespaces: String = (0..3_000).map(|n| format!(" xmlns:a{n}=\"b\"")).collect();
        let document = format!("<r{namespaces}>{}</r>", "<a/>".repeat(ELEMENTS - 1));
        let mut ends = 0;
        assert_eq!(read(&document, |_, text| ends += usize::from(text.is_empty())), Ok(()));
        assert_eq!(ends, ELEMENTS);
    }
}
