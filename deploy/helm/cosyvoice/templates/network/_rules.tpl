{{/* Egress to those who answer DNS. */}}
{{- define "cosyvoice.dns" -}}
- to: {{- toYaml .Values.networkPolicy.dns | nindent 4 }}
  ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end -}}

{{/* Egress to a service outside of the chart, by its peers and its port. */}}
{{- define "cosyvoice.outer" -}}
- ports:
    - {port: {{ .port }}, protocol: TCP}
  {{- with .peers }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* Egress to a hub, whose addresses nobody knows beforehand. */}}
{{- define "cosyvoice.hub" -}}
- ports:
    - {port: 443, protocol: TCP}
{{- end -}}
