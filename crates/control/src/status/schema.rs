//! The JSON Schema of documents, made from their types and the comments on these.

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::Word;

/// Returns the JSON Schema (draft 2020-12) of the document `name`, whose fields beside `schema` are those of `T`.
#[must_use]
pub fn schema_of<T: JsonSchema>(name: &str) -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    Readable.transform(&mut schema);
    let schema_field = json!({"description": "The name and number of the document.", "const": name});
    let mut fields = Map::from_iter([("schema".to_owned(), schema_field)]);
    fields.extend(
        object(&mut schema, "properties")
            .into_iter()
            .filter(|(field, _)| field != "schema"),
    );
    let mut required = vec![Value::from("schema")];
    required.extend(
        array(&schema, "required")
            .iter()
            .filter(|field| *field != "schema")
            .cloned(),
    );
    schema.insert("title".to_owned(), name.into());
    schema.insert("properties".to_owned(), fields.into());
    schema.insert("required".to_owned(), required.into());
    schema
}

/// What a later version may add is open, and a comment reads as text for users of the document.
struct Readable;

impl Transform for Readable {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        if let Some(Value::String(text)) = schema.get("description") {
            let text = plain(text);
            schema.insert("description".to_owned(), text.into());
        }
        say_what_is_missing(schema);
        open_words(schema);
    }
}

/// Replaces `None` by what a document has then: null, or no field.
fn say_what_is_missing(schema: &mut Schema) {
    let required = array(schema, "required").to_vec();
    let Some(Value::Object(fields)) = schema.get_mut("properties") else {
        return;
    };
    for (name, field) in fields {
        let missing = match required.iter().any(|one| one == name) {
            true => "null",
            false => "absent",
        };
        if let Some(Value::String(text)) = field.get_mut("description") {
            *text = text.replace("`None`", missing);
        }
    }
}

/// Lets a list of words be longer in a later version. This version takes all further words for `other`.
fn open_words(schema: &mut Schema) {
    let words = array(schema, "oneOf");
    if words.is_empty() || words.iter().any(|word| word.get("const").is_none()) {
        return;
    }
    let known = words.iter().filter(|word| word["const"] != "other").cloned();
    let words: Vec<Value> = known.chain([json!({"type": "string"})]).collect();
    schema.remove("oneOf");
    schema.insert("anyOf".to_owned(), words.into());
}

fn array<'a>(schema: &'a Schema, name: &str) -> &'a [Value] {
    schema.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn object(schema: &mut Schema, name: &str) -> Map<String, Value> {
    match schema.remove(name) {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// Returns a comment of Rust as text: on one line for each paragraph, and with the last name of a link instead of it.
fn plain(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
    let text = paragraphs.collect::<Vec<_>>().join("\n\n");
    let mut parts = text.split("[`");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let Some((link, rest)) = part.split_once("`]") else {
            plain = plain + "[`" + part;
            continue;
        };
        let target = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        let name = link.rsplit("::").next().unwrap_or(link);
        plain = format!("{plain}`{name}`{}", target.map_or(rest, |(_, rest)| rest));
    }
    plain
}

impl<T: JsonSchema> JsonSchema for Word<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    /// A sample.
    #[derive(Serialize, JsonSchema)]
    struct Sample {
        /// Its [`state`](Sample::state) in
        /// one [`Mode::On`]; `None` if off.
        always: Option<u8>,
        /// `None` if off.
        #[serde(skip_serializing_if = "Option::is_none")]
        at_times: Option<Word<Mode>>,
    }

    #[derive(Serialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    #[expect(dead_code, reason = "its schema is of interest")]
    enum Mode {
        /// In use.
        On,
        /// Anything else.
        #[serde(other)]
        Other,
    }

    #[test]
    fn a_schema_is_open_and_speaks_to_users() {
        let schema = schema_of::<Sample>("weft.sample/1");
        assert_eq!(schema.get("title").unwrap(), "weft.sample/1");
        assert_eq!(schema.get("required").unwrap(), &json!(["schema", "always"]));
        let fields = schema.get("properties").unwrap();
        assert_eq!(fields.as_object().unwrap().keys().next().unwrap(), "schema");
        assert_eq!(fields["schema"]["const"], "weft.sample/1");
        assert_eq!(fields["always"]["description"], "Its `state` in one `On`; null if off.");
        assert_eq!(fields["at_times"]["description"], "absent if off.");
        let words = &schema.get("$defs").unwrap()["Mode"]["anyOf"];
        assert_eq!((&words[0]["const"], words.as_array().unwrap().len()), (&json!("on"), 2));
        assert_eq!(words[1], json!({"type": "string"}));
    }
}
