// SPDX-License-Identifier: Apache-2.0

// Package conformance holds crisp against Kubernetes' own code: the API's descriptors (here), crictl
// and critest. This file compares cri/proto/cri.proto with the descriptors of k8s.io/cri-api, both
// ways, so that neither a wrong number nor a forgotten message gets in.
package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const ourProto = "cri/proto/cri.proto"

// facts says everything that clients can depend on, one thing an entry: what it is about → how it is.
type facts map[string]string

func (f facts) message(m protoreflect.MessageDescriptor) {
	if m.IsMapEntry() {
		return
	}
	f["message "+string(m.FullName())] = "there"
	for i := range m.Fields().Len() {
		field := m.Fields().Get(i)
		f["field "+string(field.FullName())] = fieldFact(field)
	}
	for i := range m.Oneofs().Len() {
		f["oneof "+string(m.Oneofs().Get(i).FullName())] = "there"
	}
	for i := range m.Enums().Len() {
		f.enum(m.Enums().Get(i))
	}
	for i := range m.Messages().Len() {
		f.message(m.Messages().Get(i))
	}
}

func typeName(field protoreflect.FieldDescriptor) string {
	switch {
	case field.IsMap():
		return "map<" + typeName(field.MapKey()) + ", " + typeName(field.MapValue()) + ">"
	case field.Message() != nil:
		return "message " + string(field.Message().FullName())
	case field.Enum() != nil:
		return "enum " + string(field.Enum().FullName())
	}
	return field.Kind().String()
}

func fieldFact(field protoreflect.FieldDescriptor) string {
	text := fmt.Sprintf("number %d, %s %s", field.Number(), field.Cardinality(), typeName(field))
	if oneof := field.ContainingOneof(); oneof != nil {
		text += ", in oneof " + string(oneof.Name())
	}
	if field.HasOptionalKeyword() {
		text += ", with presence"
	}
	if field.IsList() {
		text += fmt.Sprintf(", packed %v", field.IsPacked())
	}
	return text
}

func (f facts) enum(e protoreflect.EnumDescriptor) {
	f["enum "+string(e.FullName())] = "there"
	for i := range e.Values().Len() {
		value := e.Values().Get(i)
		f["value "+string(e.FullName())+"."+string(value.Name())] = fmt.Sprint(value.Number())
	}
}

func (f facts) service(s protoreflect.ServiceDescriptor) {
	f["service "+string(s.FullName())] = "there"
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		f["method "+string(m.FullName())] = fmt.Sprintf("%s → %s, client streams %v, server streams %v",
			m.Input().FullName(), m.Output().FullName(), m.IsStreamingClient(), m.IsStreamingServer())
	}
}

func factsOf(file protoreflect.FileDescriptor) facts {
	f := facts{"package": string(file.Package()), "syntax": file.Syntax().String()}
	for i := range file.Services().Len() {
		f.service(file.Services().Get(i))
	}
	for i := range file.Messages().Len() {
		f.message(file.Messages().Get(i))
	}
	for i := range file.Enums().Len() {
		f.enum(file.Enums().Get(i))
	}
	return f
}

// difference has a line for every fact that only one side knows or that the sides see differently.
func difference(theirs, ours facts) []string {
	var lines []string
	for about, want := range theirs {
		have, known := ours[about]
		switch {
		case !known:
			lines = append(lines, fmt.Sprintf("%s: missing, cri-api has: %s", about, want))
		case have != want:
			lines = append(lines, fmt.Sprintf("%s: %s, but cri-api has: %s", about, have, want))
		}
	}
	for about, have := range ours {
		if _, known := theirs[about]; !known {
			lines = append(lines, fmt.Sprintf("%s: %s, but cri-api has no such thing", about, have))
		}
	}
	sort.Strings(lines)
	return lines
}

// protoc compiles file (relative to root) as it is now; no generated copy can be stale.
func protoc(t *testing.T, root, file string) protoreflect.FileDescriptor {
	t.Helper()
	set := filepath.Join(t.TempDir(), "set")
	out, err := exec.Command("protoc", "--proto_path="+root, "--descriptor_set_out="+set, file).CombinedOutput()
	if err != nil {
		t.Fatalf("protoc %s: %v: %s (Debian package protobuf-compiler)", file, err, out)
	}
	raw, err := os.ReadFile(set)
	if err != nil {
		t.Fatal(err)
	}
	var files descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &files); err != nil {
		t.Fatal(err)
	}
	if len(files.File) != 1 {
		t.Fatalf("%s imports something: %d files in its descriptor set", file, len(files.File))
	}
	desc, err := protodesc.NewFile(files.File[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	return desc
}

func TestDescriptor(t *testing.T) {
	ours := factsOf(protoc(t, filepath.Join("..", ".."), ourProto))
	theirs := factsOf(criapi.File_staging_src_k8s_io_cri_api_pkg_apis_runtime_v1_api_proto)
	if len(theirs) < 800 {
		t.Fatalf("cri-api told only %d facts: is it the whole API?", len(theirs))
	}
	if lines := difference(theirs, ours); len(lines) > 0 {
		t.Errorf("%s differs from cri-api in %d things:\n%s", ourProto, len(lines), strings.Join(lines, "\n"))
	}
	t.Logf("%d facts compared", len(theirs))
}

// TestDifference makes sure that the comparison sees what it is for: each change of our file is one
// that a slip of the hand could make.
func TestDifference(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", ourProto))
	if err != nil {
		t.Fatal(err)
	}
	theirs := factsOf(criapi.File_staging_src_k8s_io_cri_api_pkg_apis_runtime_v1_api_proto)
	for name, change := range map[string][2]string{
		"number":    {"string log_path = 11;", "string log_path = 21;"},
		"type":      {"int32 exit_code = 7;", "int64 exit_code = 7;"},
		"label":     {"repeated string searches = 2;", "string searches = 2;"},
		"name":      {"bool stdin_once = 13;", "bool stdin_one = 13;"},
		"map":       {"map<string, string> sysctls = 3;", "repeated KeyValue sysctls = 3;"},
		"value":     {"SIGNAL_SIGTERM = 23;", "SIGNAL_SIGTERM = 123;"},
		"streaming": {"returns (stream ContainerEventResponse)", "returns (ContainerEventResponse)"},
		"method":    {"rpc ReopenContainerLog(", "rpc ReopenLog("},
		"message":   {"message CDIDevice {", "message CdiDevice {} message CDIDevice {"},
		"oneof":     {"CpuUsage cpu = 1;", "oneof usage { CpuUsage cpu = 1; }"},
		"presence":  {"bool tty = 14;", "optional bool tty = 14;"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(string(raw), change[0], change[1], 1)
			if changed == string(raw) {
				t.Fatalf("%s has no %q to change", ourProto, change[0])
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "cri.proto"), []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			lines := difference(theirs, factsOf(protoc(t, dir, "cri.proto")))
			if len(lines) == 0 {
				t.Errorf("%q instead of %q went unnoticed", change[1], change[0])
			}
			t.Log(strings.Join(lines, "\n"))
		})
	}
}
