//! The token of a server: it allows to read.

use subtle::ConstantTimeEq as _;

/// A random number of 128 bits, as 32 hexadecimal digits.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// Makes a token from the system's random numbers.
    ///
    /// # Errors
    /// If the system has none.
    pub(crate) fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self(format!("{:032x}", u128::from_be_bytes(bytes))))
    }

    /// Returns its digits. They belong into no argument of a program.
    pub(crate) fn digits(&self) -> &str {
        &self.0
    }

    /// Returns whether a text is the token. The time that it takes does not depend on where they differ.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.0.as_bytes().ct_eq(text.as_bytes()).into()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}
