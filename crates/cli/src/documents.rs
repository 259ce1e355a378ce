//! The documents that commands print: those of the daemon, and those that a command makes itself. `weft schema`
//! describes them, and docs/json.md is made of the same descriptions.

#[cfg(all(test, feature = "lab"))]
pub(crate) mod tests;

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Map, Value, json};
use weft_control::status::{schema_of, schemas};
use weft_transfer::api::{
    CLEANED, Cleaned, LIMITS, LISTING, LimitsStatus, Listing, SERVICES, SHARES, ServiceList, Shares, TRANSFERS,
    Transfers,
};

use crate::failure::{Failed, Failure};
use crate::output::Out;
use crate::{configure, doctor, identity, key, ping, service, verify, wait};

/// A document that a command makes without the daemon. Its field `schema` is added when it is printed.
pub(crate) trait OfCommand: Serialize + JsonSchema {
    /// The name and number of the document.
    const NAME: &'static str;
}

/// Returns the JSON of a document, `schema` first.
pub(crate) fn document<T: OfCommand>(body: &T) -> Value {
    let mut document = Map::from_iter([("schema".to_owned(), Value::from(T::NAME))]);
    if let Value::Object(fields) = json!(body) {
        document.extend(fields);
    }
    document.into()
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The document, such as weft.status/1 [default: list their names]
    document: Option<String>,
}

/// Prints the JSON Schema of a document, or the names of all.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let all = all();
    let Some(wanted) = &args.document else {
        return Out::new().text(&all.iter().map(|(name, _)| format!("{name}\n")).collect::<String>());
    };
    match all.into_iter().find(|(name, _)| name == wanted) {
        Some((_, schema)) => Out::new().json(schema.as_value()),
        None => Err(Failure::Usage(format!(
            "no document is named '{}'; `weft schema` lists them",
            wanted.escape_debug()
        ))),
    }
}

/// Returns the name and the JSON Schema of each document, by name.
pub(crate) fn all() -> Vec<(&'static str, Schema)> {
    fn of<T: OfCommand>() -> (&'static str, Schema) {
        (T::NAME, schema_of::<T>(T::NAME))
    }
    let mut all = schemas();
    all.extend([
        of::<Failed<'_>>(),
        of::<ping::Summarized>(),
        of::<verify::Words<'_>>(),
        of::<wait::Waited<'_>>(),
        of::<configure::Configured>(),
        of::<doctor::Examined<'_>>(),
        of::<identity::Shown>(),
        of::<key::Exported>(),
        of::<key::Imported>(),
        of::<service::Service<'_>>(),
        (TRANSFERS, schema_of::<Transfers>(TRANSFERS)),
        (SHARES, schema_of::<Shares>(SHARES)),
        (LISTING, schema_of::<Listing>(LISTING)),
        (SERVICES, schema_of::<ServiceList>(SERVICES)),
        (CLEANED, schema_of::<Cleaned>(CLEANED)),
        (LIMITS, schema_of::<LimitsStatus>(LIMITS)),
    ]);
    all.sort_by_key(|(name, _)| *name);
    all
}
