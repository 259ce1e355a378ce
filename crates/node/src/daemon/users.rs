//! The names of the users of this system, by which peers name those that receive files.

use std::collections::BTreeMap;
use std::fs;

use weft_wire::grant::UserName;

/// The names by number, as `/etc/passwd` had them at the start: the daemon gives up the right to read it.
#[derive(Debug, Default)]
pub(super) struct Users(BTreeMap<u32, String>);

impl Users {
    /// Reads the names. Without a list of users, numbers stand for them.
    pub(super) fn read() -> Self {
        match fs::read_to_string("/etc/passwd") {
            Ok(text) => Self::parse(&text),
            Err(error) => {
                tracing::info!(%error, "/etc/passwd cannot be read, so users that receive files have numbers");
                Self::default()
            }
        }
    }

    /// Takes the names of a text in the format of passwd(5). The first of a number is its name. Names that peers
    /// cannot ask for are left out.
    fn parse(text: &str) -> Self {
        let mut users = BTreeMap::new();
        for line in text.lines() {
            let mut fields = line.split(':');
            let (name, uid) = (fields.next().unwrap_or_default(), fields.nth(1));
            let uid = uid.and_then(|uid| uid.parse().ok());
            if let Some(uid) = uid.filter(|_| !name.is_empty() && UserName::new(name).is_ok()) {
                users.entry(uid).or_insert_with(|| name.to_owned());
            }
        }
        Self(users)
    }

    /// Returns the name of a user, or else its number.
    pub(super) fn name(&self, uid: u32) -> String {
        self.0.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_first_name_of_its_number_or_the_number() {
        let long = "x".repeat(33);
        let text = format!(
            "root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\n\nbroken\n:x:7:7::/:\nbob:x:1000:1000::/home/bob:/bin/sh\n\
             {long}:x:1001:1001::/:\nminus:x:-1:0::/:\nlast:x:1002"
        );
        let users = Users::parse(&text);
        for (uid, name) in [
            (0, "root"),
            (7, "7"),
            (1000, "bob"),
            (1001, "1001"),
            (1002, "last"),
            (u32::MAX, "4294967295"),
        ] {
            assert_eq!(users.name(uid), name);
        }
    }
}
