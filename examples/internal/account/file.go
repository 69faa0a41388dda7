package account

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/fence/filefence"
)

func startFiles(_ context.Context, dir string) (*Store, error) {
	dir, err := os.MkdirTemp(dir, "accounts-")
	return &Store{URL: "file://" + dir, Close: func() {}}, err
}

func openFiles(_ context.Context, store, name string) (Pair, error) {
	path := filepath.Join(strings.TrimPrefix(store, "file://"), url.PathEscape(name))
	guarded, err := filefence.Open(path+"-guarded", filefence.Config{})
	return Pair{plainFile{path: path + "-plain"}, guardedFile{guarded}}, err
}

type plainFile struct {
	unguarded
	path string
}

func (f plainFile) Read(context.Context) (int, error) { return opened(os.ReadFile(f.path)) }

func (f plainFile) Write(_ context.Context, _ fence.Grant, balance int) error {
	return os.WriteFile(f.path, stored(balance), 0o600)
}

type guardedFile struct{ *filefence.File }

func (f guardedFile) Read(ctx context.Context) (int, error) { return opened(f.File.Read(ctx)) }

func (f guardedFile) Write(ctx context.Context, g fence.Grant, balance int) error {
	return f.File.Write(ctx, g, stored(balance))
}
