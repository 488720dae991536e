{{/* Name of all objects: the release's, cut to what labels may hold. */}}
{{- define "penstock.name" -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{/* Labels by which services and policies find the pod. */}}
{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The Secret with the configuration. */}}
{{- define "penstock.secret" -}}
{{- if .Values.config.secretName -}}
{{ .Values.config.secretName }}
{{- else if .Values.config.text -}}
{{ include "penstock.name" . }}
{{- else -}}
{{ fail "give the gateway's configuration: --set-file config.text=gateway.toml, or config.secretName" }}
{{- end -}}
{{- end }}
