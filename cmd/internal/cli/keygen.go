package cli

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
)

func (a *App) keygenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "keygen COMMAND",
		Short:   "Generate the secret of a cluster",
		Example: "  lockstep keygen secret cluster.secret",
		Args:    cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(`no command given: see "lockstep keygen --help"`)
			}
			return usageError(`unknown command %q: see "lockstep keygen --help"`, args[0])
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "secret FILE",
		Short: "Write a new cluster secret to FILE",
		Long: `Writes 32 random bytes, as one line of hexadecimal digits, to FILE with mode 0600. An existing
file is never overwritten. Copy it to every node of the cluster, and pass it there with
"server --cluster-secret-file FILE".

To change the secret of a running cluster, see "Change the cluster secret" in docs/operations.md.`,
		Example: "  lockstep keygen secret cluster.secret",
		Args:    exactly("FILE"),
		RunE:    func(_ *cobra.Command, args []string) error { return writeSecret(args[0]) },
	})
	return cmd
}

// writeSecret creates the complete file or none.
func writeSecret(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return usageError("%s already exists, and a secret is never overwritten: give another name, or remove the file first", path)
	}
	if err != nil {
		return usageError("%w", err)
	}
	var secret [32]byte
	rand.Read(secret[:]) // never fails, see its documentation
	_, err = fmt.Fprintln(f, hex.EncodeToString(secret[:]))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
