// SPDX-License-Identifier: Apache-2.0

// labreg is a read-only image registry over the docker archives that make-images.sh writes, for those who insist
// on pulling (critest, kubeadm). Which registry a name begins with is not looked at: a runtime may be told to ask
// here for all of them.
//
//	labreg ADDRESS ARCHIVE...
package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
)

// registry is what may be asked for: blobs by digest, and the manifests' digests by "REPOSITORY:TAG".
type registry struct {
	blobs map[string]*io.SectionReader
	tags  map[string]string
}

type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: labreg ADDRESS ARCHIVE...")
	}
	r := registry{map[string]*io.SectionReader{}, map[string]string{}}
	for _, name := range os.Args[2:] {
		if err := r.add(name); err != nil {
			log.Fatalf("read %s: %v", name, err)
		}
	}
	log.Fatal(http.ListenAndServe(os.Args[1], &r))
}

// add indexes an archive; its parts are read from where they lie in the file.
func (r *registry) add(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	parts := map[string]*io.SectionReader{}
	for t := tar.NewReader(f); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		at, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		parts[h.Name] = io.NewSectionReader(f, at, h.Size)
	}
	var images []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := decode(parts["manifest.json"], &images); err != nil {
		return err
	}
	for _, i := range images {
		if err := r.image(parts, i.Config, i.Layers, i.RepoTags); err != nil {
			return err
		}
	}
	return nil
}

func decode(s *io.SectionReader, to any) error {
	if s == nil {
		return errors.New("not a docker archive")
	}
	return json.NewDecoder(io.NewSectionReader(s, 0, s.Size())).Decode(to)
}

func (r *registry) image(parts map[string]*io.SectionReader, config string, layers, tags []string) error {
	var c struct {
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := decode(parts[config], &c); err != nil {
		return err
	}
	if len(c.Rootfs.DiffIDs) != len(layers) {
		return fmt.Errorf("%d layers, %d digests", len(layers), len(c.Rootfs.DiffIDs))
	}
	text, err := io.ReadAll(io.NewSectionReader(parts[config], 0, parts[config].Size()))
	if err != nil {
		return err
	}
	m := map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": r.text(configType, text)}
	list := make([]descriptor, 0, len(layers))
	for i, l := range layers {
		// an uncompressed layer's digest is its diff id
		r.blobs[c.Rootfs.DiffIDs[i]] = parts[l]
		list = append(list, descriptor{layerType, c.Rootfs.DiffIDs[i], parts[l].Size()})
	}
	m["layers"] = list
	text, err = json.Marshal(m)
	if err != nil {
		return err
	}
	d := r.text(manifestType, text)
	for _, t := range tags {
		r.tags[repository(t)] = d.Digest
	}
	return nil
}

func (r *registry) text(kind string, b []byte) descriptor {
	sum := sha256.Sum256(b)
	d := descriptor{kind, "sha256:" + hex.EncodeToString(sum[:]), int64(len(b))}
	r.blobs[d.Digest] = io.NewSectionReader(strings.NewReader(string(b)), 0, d.Size)
	return d
}

// repository is an image's name without its registry: "localhost/a/b:1" is "a/b:1", "b:1" is "library/b:1".
func repository(name string) string {
	first, rest, ok := strings.Cut(name, "/")
	switch {
	case !ok:
		return "library/" + name
	case first == "localhost" || strings.ContainsAny(first, ".:"):
		return rest
	}
	return name
}

// ServeHTTP answers /v2/, /v2/NAME/manifests/REFERENCE and /v2/NAME/blobs/DIGEST.
func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	path := strings.TrimPrefix(q.URL.Path, "/v2")
	if path == "" || path == "/" {
		return
	}
	kind := "application/octet-stream"
	i, cut := strings.LastIndex(path, "/blobs/"), len("/blobs/")
	if i < 0 {
		kind = manifestType
		i, cut = strings.LastIndex(path, "/manifests/"), len("/manifests/")
	}
	if i < 1 {
		http.NotFound(w, q)
		return
	}
	digest := path[i+cut:]
	if d, ok := r.tags[path[1:i]+":"+digest]; ok {
		digest = d
	}
	blob, ok := r.blobs[digest]
	if !ok {
		log.Printf("no such image: %s:%s", path[1:i], digest)
		http.NotFound(w, q)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Docker-Content-Digest", digest)
	http.ServeContent(w, q, "", time.Time{}, io.NewSectionReader(blob, 0, blob.Size()))
}
