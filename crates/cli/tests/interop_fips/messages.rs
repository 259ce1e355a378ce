//! What one side says and the other does not know or need.
