// Package cli is the command line: one file for each command, the flags and how
// they get their values, and what an error looks like.
//
// # Promises to scripts
//
//  1. Every negative answer has an exit code above zero: see the constants Code….
//  2. An error is one line on the standard error that says what to do. Nothing that
//     came from elsewhere reaches the terminal unescaped.
//  3. The value of a flag is that of the command line, else of LOCKSTEP_<FLAG> in
//     the environment, else of the configuration file, else the default.
//  4. What "-o json" prints has the same fields from version to version; new ones
//     may be added. Tokens are numbers.
package cli
